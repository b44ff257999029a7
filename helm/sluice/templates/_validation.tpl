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
{{- if and .Values.console.enabled (not (and $admin.tokens.existingSecret $admin.tls.existingSecret)) -}}
{{- fail "console.enabled: found true without admin.tokens.existingSecret and admin.tls.existingSecret; name both, since browsers sign in with a token over TLS" -}}
{{- end -}}
{{- if and .Values.console.ingress.enabled (not (and .Values.console.enabled .Values.console.ingress.host)) -}}
{{- fail "console.ingress.enabled: found true without console.enabled and console.ingress.host; write both" -}}
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
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.alerts.enabled (not (or $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled $metrics.alerts.selector)) -}}
{{- fail "metrics.alerts.enabled: found true without metrics.serviceMonitor or metrics.podMonitor; without scraped metrics no alert would fire: enable one, or write metrics.alerts.selector if something else scrapes" -}}
{{- end -}}
{{- if and (lt (int .Values.owner.replicas) 2) (not $etcd.dev.enabled) -}}
{{- fail "owner.replicas: found 1; one leads and one takes over, so write 2 or more (1 is for trials with etcd.dev.enabled)" -}}
{{- end -}}
{{- if lt (int .Values.grace) (int .Values.sessionTtl) -}}
{{- fail (printf "grace: found %d, which is less than sessionTtl %d; a node that is killed before it has handed over leaves its tables alone for that long: write at least as much" (int .Values.grace) (int .Values.sessionTtl)) -}}
{{- end -}}
{{- range $path, $part := dict "owner" .Values.owner "processor" .Values.processor "etcd.dev" $etcd.dev "changefeedJob" .Values.changefeedJob -}}
{{- range $name, $limit := $part.resources.limits -}}
{{- $request := get (default dict $part.resources.requests) $name -}}
{{- if and $request (lt (include "sluice.quantity" $limit | float64) (include "sluice.quantity" $request | float64)) -}}
{{- fail (printf "%s.resources.limits.%s: found %v, which is less than the request %v; write at least as much" $path $name $limit $request) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.processorName) -}}
{{- fail "serviceAccount.create: found false without serviceAccount.processorName; name the ServiceAccount of yours that processors use" -}}
{{- end -}}
{{- if and $admin.ingress.enabled (not $admin.ingress.host) -}}
{{- fail "admin.ingress.enabled: found true without admin.ingress.host; write it" -}}
{{- end -}}
{{- if and $admin.gateway.enabled (not $admin.gateway.parentRefs) -}}
{{- fail "admin.gateway.enabled: found true without admin.gateway.parentRefs; name the gateways that take the route" -}}
{{- end -}}
{{- if and .Values.changefeedJob.prune (not .Values.changefeeds) -}}
{{- fail "changefeedJob.prune: found true without changefeeds; it would remove all, write those that stay" -}}
{{- end -}}
{{- end -}}
