{{/* Refuses values that contradict each other, which the schema cannot check. Each message names the finding and the remedy. */}}
{{- define "sluice.validate" -}}
{{- $etcd := .Values.etcd -}}
{{- if and (not $etcd.endpoints) (not $etcd.dev.enabled) -}}
{{- fail "etcd.endpoints: found none; write the host:port of your etcd's members, or etcd.dev.enabled: true for trials" -}}
{{- end -}}
{{- if and $etcd.endpoints $etcd.dev.enabled -}}
{{- fail "etcd.dev.enabled: found true beside etcd.endpoints; choose one" -}}
{{- end -}}
{{- if and $etcd.dev.enabled (or $etcd.auth.existingSecret $etcd.tls.existingSecret) -}}
{{- fail "etcd.dev.enabled: found true beside etcd.auth or etcd.tls, which the bundled etcd does not have; use your own etcd" -}}
{{- end -}}
{{- if and $etcd.tls.clientCertificate (not $etcd.tls.existingSecret) -}}
{{- fail "etcd.tls.clientCertificate: found true without etcd.tls.existingSecret; name the Secret with ca.crt, tls.crt and tls.key" -}}
{{- end -}}
{{- range $etcd.endpoints -}}
{{- if contains "/" . -}}
{{- fail (printf "etcd.endpoints: found %q; write host:port without http://, and configure TLS in etcd.tls" .) -}}
{{- end -}}
{{- end -}}
{{- range $path, $image := dict "image" .Values.image "etcd.dev.image" $etcd.dev.image -}}
{{- if eq $image.tag "latest" -}}
{{- fail (printf "%s.tag: found \"latest\", which names no fixed version; write a version" $path) -}}
{{- end -}}
{{- end -}}
{{- $admin := .Values.admin -}}
{{- if not (or $admin.tokens.existingSecret $admin.tls.clientCertificates $admin.allowUnauthenticated) -}}
{{- fail "admin: found no authentication; name a Secret in admin.tokens.existingSecret, or set admin.tls.clientCertificates: true, or admin.allowUnauthenticated: true if the network itself is protected" -}}
{{- end -}}
{{- if and $admin.tls.clientCertificates (not $admin.tls.existingSecret) -}}
{{- fail "admin.tls.clientCertificates: found true without admin.tls.existingSecret; name the Secret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if and $admin.tokens.existingSecret (not $admin.tls.existingSecret) (not $admin.allowPlaintext) -}}
{{- fail "admin.tokens: found tokens without TLS; name a Secret in admin.tls.existingSecret, or set admin.allowPlaintext: true to send them unencrypted" -}}
{{- end -}}
{{- if and $admin.tls.clientCertificates (not $admin.tls.clientSecret) -}}
{{- fail "admin.tls.clientSecret: found none, but the chart's own calls (drain, create changefeeds) need a certificate; name a Secret with tls.crt and tls.key" -}}
{{- end -}}
{{- if and .Values.credentials.existingSecret .Values.credentials.data -}}
{{- fail "credentials.data: found beside credentials.existingSecret; choose one" -}}
{{- end -}}
{{- $executor := .Values.spark.executor -}}
{{- if lt (int $executor.max) (int $executor.min) -}}
{{- fail (printf "spark.executor.max: found %d, which is less than spark.executor.min %d; write at least as many" (int $executor.max) (int $executor.min)) -}}
{{- end -}}
{{- $scaling := .Values.processor.autoscaling -}}
{{- if lt (int $scaling.maxReplicas) (int $scaling.minReplicas) -}}
{{- fail (printf "processor.autoscaling.maxReplicas: found %d, which is less than minReplicas %d; write at least as many" (int $scaling.maxReplicas) (int $scaling.minReplicas)) -}}
{{- end -}}
{{- $ids := dict -}}
{{- range .Values.changefeeds -}}
{{- if hasKey $ids .id -}}
{{- fail (printf "changefeeds: found the id %q twice; give each changefeed an id of its own" .id) -}}
{{- end -}}
{{- $_ := set $ids .id true -}}
{{- end -}}
{{- if and .Values.metrics.alerts.enabled (not .Values.metrics.serviceMonitor.enabled) -}}
{{- fail "metrics.alerts.enabled: found true without metrics.serviceMonitor.enabled; without scraped metrics no alert would fire: enable both" -}}
{{- end -}}
{{- end -}}
