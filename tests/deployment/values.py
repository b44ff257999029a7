"""Values as users of the chart write them: which are accepted, and which are refused with which message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Values = dict[str, Any]

_ETCD: Values = {"etcd": {"endpoints": ["etcd-0.etcd:2379", "etcd-1.etcd:2379"]}}
_ADMIN: Values = {"admin": {"tls": {"existingSecret": "admin-tls"}, "tokens": {"existingSecret": "admin-tokens"}}}
_FEED: Values = {
    "id": "orders-to-dr",
    "source": "mongodb://${file:/run/secrets/sluice/source}",
    "sink": "mongodb://${file:/run/secrets/sluice/target}",
    "filter": {"tables": ["shop.*", "!shop.tmp_*"]},
    "routes": [{"from": "shop.*", "to": "shop_dr.*"}],
}
_BUCKET: Values = {
    "id": "archive",
    "source": "mongodb://db.example",
    "sink": "s3://orders-archive/shop?region=eu-central-1",
}
_TOPICS: Values = {
    "id": "topics",
    "source": "mongodb://db.example",
    "sink": "kafka://sluice:${file:/run/secrets/sluice/kafka}@b1.example:9093,b2.example:9093/shop?sasl=PLAIN&tls=true",
}
PRODUCTION: Values = {**_ETCD, **_ADMIN}
_SMALL: Values = yaml.safe_load(
    (Path(__file__).parents[2] / "helm" / "sluice" / "small.yaml").read_text(encoding="utf-8")
)

POD_EXECUTORS: Values = {**PRODUCTION, "spark": {"master": "kubernetes"}}
STANDALONE: Values = {**PRODUCTION, "spark": {"master": "spark://master-0.spark:7077,master-1.spark:7078"}}

GOOD: dict[str, Values] = {
    "production": PRODUCTION,
    "executors in pods": POD_EXECUTORS,
    "a standalone cluster": STANDALONE,
    "a standalone cluster elsewhere": {
        **PRODUCTION,
        "spark": {
            "master": "spark://192.0.2.10:7077",
            "driver": {"address": "ip"},
            "conf": {"spark.pyspark.python": "/opt/sluice/bin/python"},
        },
        "networkPolicy": {
            "sparkFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "egress": [{"ports": [{"port": 27017}, {"port": 2379}]}],
        },
    },
    "a small machine": {**PRODUCTION, **_SMALL},
    "trial": {
        "etcd": {"dev": {"enabled": True}},
        "admin": {"allowUnauthenticated": True},
        "spark": {"local": {"cores": 1}},
        "credentials": {"data": {"source": "reader:secret@db1.example"}},
        "changefeeds": [_FEED],
    },
    "etcd kept on a disk": {"etcd": {"dev": {"enabled": True, "storage": "1Gi", "storageClass": "fast"}}, **_ADMIN},
    "secured etcd": {
        "etcd": {
            "endpoints": ["etcd:2379"],
            "auth": {"user": "sluice", "existingSecret": "etcd-password"},
            "tls": {"existingSecret": "etcd-tls", "clientCertificate": True},
        },
        "spark": {"master": "kubernetes"},
        **_ADMIN,
    },
    "client certificates": {
        **_ETCD,
        "admin": {"tls": {"existingSecret": "admin-tls", "clientCertificates": True, "clientSecret": "admin-client"}},
    },
    "tokens in clear": {**_ETCD, "admin": {"tokens": {"existingSecret": "admin-tokens"}, "allowPlaintext": True}},
    "changefeeds": {
        **PRODUCTION,
        "credentials": {"existingSecret": "mongodb"},
        "changefeeds": [
            _FEED,
            {"id": "audit", "source": "mongodb+srv://db.example", "sink": "blackhole://"},
            _BUCKET,
            _TOPICS,
        ],
    },
    "monitored": {
        **PRODUCTION,
        "metrics": {
            "serviceMonitor": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "endpoint": {
                    "scrapeTimeout": "9s",
                    "scheme": "https",
                    "tlsConfig": {"insecureSkipVerify": True},
                    "relabelings": [{"targetLabel": "team", "replacement": "data"}],
                },
            },
            "dashboard": {"enabled": True},
            "alerts": {
                "enabled": True,
                "lagSeconds": 30,
                "oplogWindowHours": 48,
                "runbookUrl": "https://wiki.example/sluice/operations.html",
            },
        },
    },
    "monitored by pod": {
        **PRODUCTION,
        "metrics": {
            "podMonitor": {
                "enabled": True,
                "endpoint": {"relabelings": [{"targetLabel": "team", "replacement": "data"}]},
            },
            "alerts": {"enabled": True},
        },
    },
    "scraped by something else": {
        **PRODUCTION,
        "metrics": {"alerts": {"enabled": True, "selector": 'namespace="data",job=~"sluice.*"'}},
    },
    "one owner for a trial": {"etcd": {"dev": {"enabled": True}}, **_ADMIN, "owner": {"replicas": 1}},
    "keys of the platform": {
        **POD_EXECUTORS,
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/sluice"}},
    },
    "managed": {**PRODUCTION, "changefeeds": [_FEED, _BUCKET], "changefeedJob": {"update": True, "prune": True}},
    "with parts of their own": {
        **POD_EXECUTORS,
        "commonLabels": {"team": "data"},
        "admin": {
            **_ADMIN["admin"],
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "GRPCS"},
                "host": "sluice-admin.example",
                "tlsSecret": "ingress-tls",
            },
            "gateway": {
                "enabled": True,
                "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "grpc"}],
                "hostnames": ["sluice-admin.example"],
            },
        },
        "securityContext": {"pod": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
        "tmp": {"sizeLimit": "8Gi"},
        "processor": {
            "resources": {
                "requests": {"cpu": "500m", "memory": "3Gi", "ephemeral-storage": "9Gi"},
                "limits": {"cpu": 1, "memory": "3072Mi", "ephemeral-storage": "10Gi"},
            }
        },
        "extraVolumes": [{"name": "kerberos", "configMap": {"name": "trial-sluice"}}],
        "extraVolumeMounts": [{"name": "kerberos", "mountPath": "/etc/krb5"}],
        "initContainers": [
            {"name": "waits", "image": "busybox:1.36", "command": ["true"], "volumeMounts": []},
        ],
        "sidecars": [
            {
                "name": "vault",
                "image": "vault-agent:1.17",
                "ports": [{"name": "vault", "containerPort": 8200}],
                "resources": {"limits": {"memory": "64Mi"}},
                "securityContext": {
                    "readOnlyRootFilesystem": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
    },
    "console": {
        **PRODUCTION,
        "console": {
            "enabled": True,
            "ingress": {
                "enabled": True,
                "className": "nginx",
                "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"},
                "host": "sluice.example",
                "tlsSecret": "console-tls",
            },
        },
        "networkPolicy": {
            "consoleFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]
        },
    },
    "autoscaled": {**PRODUCTION, "processor": {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 9}}},
    "closed network": {
        **POD_EXECUTORS,
        "networkPolicy": {
            "adminFrom": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 27017}]}],
        },
    },
    "closed network for trying": {
        "etcd": {"dev": {"enabled": True}},
        **_ADMIN,
        "networkPolicy": {"egress": [{"ports": [{"port": 27017}]}]},
    },
    "placed": {
        **PRODUCTION,
        "image": {
            "repository": "images.example/data/sluice",
            "tag": "0.1.0",
            "digest": f"sha256:{'0a' * 32}",
            "pullSecrets": ["pull"],
        },
        "owner": {
            "replicas": 3,
            "nodeSelector": {"pool": "small"},
            "tolerations": [{"key": "small", "operator": "Exists"}],
            "priorityClassName": "high",
            "podAnnotations": {"note": "owner"},
            "podLabels": {"team": "data"},
        },
        "processor": {
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "processor"}},
                }
            ],
        },
        "spark": {
            "master": "kubernetes",
            "executor": {
                "min": 0,
                "max": 20,
                "nodeSelector": {"pool": "spot"},
                "tolerations": [{"operator": "Exists"}],
            },
        },
        "extraEnv": [
            {"name": "SOURCE_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "mongodb", "key": "password"}}}
        ],
        "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    },
    "own accounts and names": {
        **PRODUCTION,
        "fullnameOverride": "replication",
        "serviceAccount": {"create": False, "processorName": "spark"},
        "networkPolicy": {"enabled": False},
        "owner": {"podDisruptionBudget": {"enabled": False}},
        "spark": {
            "master": "kubernetes",
            "conf": {"spark.executor.memory": "3g", "spark.python.worker.memory": "512m"},
        },
    },
}

BAD: dict[str, tuple[Values, str]] = {
    "a console without tokens": (
        {**_ETCD, "admin": {"allowUnauthenticated": True}, "console": {"enabled": True}},
        "console.enabled: found true without admin.tokens.existingSecret",
    ),
    "an ingress without a host": (
        {**PRODUCTION, "console": {"enabled": True, "ingress": {"enabled": True}}},
        "console.ingress.enabled: found true without console.enabled and console.ingress.host",
    ),
    "no etcd": (_ADMIN, "etcd.endpoints: found none"),
    "two etcds": (
        {"etcd": {**_ETCD["etcd"], "dev": {"enabled": True}}, **_ADMIN},
        "etcd.dev.enabled: found true beside etcd.endpoints",
    ),
    "secured bundled etcd": (
        {"etcd": {"dev": {"enabled": True}, "auth": {"existingSecret": "x"}}, **_ADMIN},
        "found true beside etcd.auth or etcd.tls",
    ),
    "client certificate of etcd without a Secret": (
        {"etcd": {**_ETCD["etcd"], "tls": {"clientCertificate": True}}, **_ADMIN},
        "etcd.tls.clientCertificate: found true without etcd.tls.existingSecret",
    ),
    "etcd as a URL": (
        {"etcd": {"endpoints": ["http://etcd:2379"]}, **_ADMIN},
        'etcd.endpoints: found "http://etcd:2379"; write host:port',
    ),
    "etcd without a port": ({"etcd": {"endpoints": ["etcd"]}, **_ADMIN}, "at '/etcd/endpoints/0'"),
    "nobody is asked": (_ETCD, "admin: found no authentication"),
    "tokens in clear": (
        {**_ETCD, "admin": {"tokens": {"existingSecret": "x"}}},
        "admin.tokens: found tokens without TLS",
    ),
    "mTLS without TLS": ({**_ETCD, "admin": {"tls": {"clientCertificates": True}}}, "without admin.tls.existingSecret"),
    "mTLS without a certificate of its own": (
        {**_ETCD, "admin": {"tls": {"existingSecret": "x", "clientCertificates": True}}},
        "admin.tls.clientSecret: found none",
    ),
    "one owner": ({**PRODUCTION, "owner": {"replicas": 1}}, "owner.replicas: found 1; one leads and one takes over"),
    "a session longer than the grace": (
        {**PRODUCTION, "grace": 5},
        "grace: found 5, which is less than sessionTtl 10",
    ),
    "a limit below its request": (
        {**PRODUCTION, "processor": {"resources": {"limits": {"memory": "2900Mi"}}}},
        "processor.resources.limits.memory: found 2900Mi, which is less than the request 3Gi",
    ),
    "a limit of CPUs below its request": (
        {**PRODUCTION, "owner": {"resources": {"limits": {"cpu": "0.1"}}}},
        "owner.resources.limits.cpu: found 0.1, which is less than the request 200m",
    ),
    "an admin ingress without a host": (
        {**PRODUCTION, "admin": {**_ADMIN["admin"], "ingress": {"enabled": True}}},
        "admin.ingress.enabled: found true without admin.ingress.host",
    ),
    "an admin route without a gateway": (
        {**PRODUCTION, "admin": {**_ADMIN["admin"], "gateway": {"enabled": True}}},
        "admin.gateway.enabled: found true without admin.gateway.parentRefs",
    ),
    "an account that nobody creates": (
        {**PRODUCTION, "serviceAccount": {"create": False}},
        "serviceAccount.create: found false without serviceAccount.processorName",
    ),
    "pruning to nothing": (
        {**PRODUCTION, "changefeedJob": {"prune": True}},
        "changefeedJob.prune: found true without changefeeds",
    ),
    "latest": ({**PRODUCTION, "image": {"tag": "latest"}}, 'image.tag: found "latest"'),
    "half a digest": (
        {**PRODUCTION, "image": {"digest": "sha256:12"}},
        "at '/image/digest': 'sha256:12' does not match pattern",
    ),
    "misspelt key": ({**PRODUCTION, "procesor": {"replicas": 3}}, "additional properties 'procesor' not allowed"),
    "misspelt key inside": (
        {**PRODUCTION, "spark": {"executor": {"maximum": 3}}},
        "at '/spark/executor': additional properties 'maximum'",
    ),
    "text for a number": ({**PRODUCTION, "grace": "60"}, "at '/grace': got string, want integer"),
    "a size Spark does not read": (
        {**PRODUCTION, "spark": {"executor": {"memory": "2Gi"}}},
        "at '/spark/executor/memory': '2Gi'",
    ),
    "unknown master": (
        {**PRODUCTION, "spark": {"master": "yarn"}},
        "at '/spark/master': 'yarn' does not match pattern",
    ),
    "a master without its port": (
        {**PRODUCTION, "spark": {"master": "spark://master"}},
        "at '/spark/master': 'spark://master' does not match pattern",
    ),
    "executors the wrong way round": (
        {**PRODUCTION, "spark": {"executor": {"min": 5, "max": 2}}},
        "spark.executor.max: found 2, which is less than spark.executor.min 5",
    ),
    "scaling the wrong way round": (
        {**PRODUCTION, "processor": {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}}},
        "processor.autoscaling.maxReplicas: found 2",
    ),
    "changefeed without a sink": (
        {**PRODUCTION, "changefeeds": [{"id": "a", "source": "mongodb://a"}]},
        "missing property 'sink'",
    ),
    "another database": (
        {**PRODUCTION, "changefeeds": [{"id": "a", "source": "postgres://a", "sink": "mongodb://b"}]},
        "at '/changefeeds/0/source': 'postgres://a' does not match pattern",
    ),
    "a filter that means nothing": (
        {**PRODUCTION, "changefeeds": [{**_FEED, "filter": {"tables": ["orders"]}}]},
        "at '/changefeeds/0/filter/tables/0': 'orders' does not match pattern",
    ),
    "a misspelt key of a filter": (
        {**PRODUCTION, "changefeeds": [{**_FEED, "filter": {"table": ["shop.*"]}}]},
        "at '/changefeeds/0/filter': additional properties 'table' not allowed",
    ),
    "an event that does not exist": (
        {**PRODUCTION, "changefeeds": [{**_FEED, "filter": {"events": [{"tables": ["a.b"], "ignore": ["remove"]}]}}]},
        "at '/changefeeds/0/filter/events/0/ignore/0'",
    ),
    "a route to nowhere": (
        {**PRODUCTION, "changefeeds": [{**_FEED, "routes": [{"from": "shop.*"}]}]},
        "at '/changefeeds/0/routes/0': missing property 'to'",
    ),
    "one id twice": ({**PRODUCTION, "changefeeds": [_FEED, _FEED]}, 'changefeeds: found the id "orders-to-dr" twice'),
    "credentials twice": (
        {**PRODUCTION, "credentials": {"existingSecret": "a", "data": {"b": "c"}}},
        "credentials.data: found beside credentials.existingSecret",
    ),
    "alerts on nothing": (
        {**PRODUCTION, "metrics": {"alerts": {"enabled": True}}},
        "metrics.alerts.enabled: found true without",
    ),
}
