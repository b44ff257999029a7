# The image of nodes and of their Spark executors:
#
#     docker build --build-arg BASE=python:3.11.13-slim-bookworm@sha256:... --tag sluice:0.1.0 .
#
# A release names the base's digest; docs/how-to/install.md says where it comes from.
# Runs as 10001:10001 on a read-only root file system. What it writes goes to /tmp, which has to be writable.
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BASE} AS build
COPY container/build.lock container/runtime.lock /src/
# pyspark comes as source only: what builds it is locked too, and stays in this stage.
RUN python -m venv /build \
 && /build/bin/python -m pip install --require-hashes --requirement /src/build.lock
RUN /build/bin/python -m pip wheel --no-build-isolation --require-hashes --requirement /src/runtime.lock --wheel-dir /wheels
COPY . /src
RUN /build/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir /wheels /src
RUN python -m venv --without-pip /opt/sluice \
 && /build/bin/python -m pip --python /opt/sluice/bin/python install --no-index --no-deps /wheels/*.whl \
 && install --mode=0755 /src/container/entrypoint /opt/sluice/bin/entrypoint

FROM ${BASE} AS run
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java \
 && python -m pip uninstall --yes --root-user-action=ignore setuptools wheel pip \
 && rm -rf /usr/local/lib/python3.11/ensurepip \
 && groupadd --gid 10001 sluice \
 && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin sluice
COPY --from=build /opt/sluice /opt/sluice
ENV PATH=/opt/sluice/bin:$PATH \
    JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/sluice/lib/python3.11/site-packages/pyspark \
    SPARK_LOCAL_DIRS=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A node starts its Spark in a third of the CPU.
RUN python -m processor.spark.class_archive /opt/sluice/spark-classes.jsa
ENV SPARK_SUBMIT_OPTS=-XX:SharedArchiveFile=/opt/sluice/spark-classes.jsa
USER 10001:10001
WORKDIR /tmp
EXPOSE 8300 8301
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/sluice/bin/entrypoint"]
CMD ["server"]
