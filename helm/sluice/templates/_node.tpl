{{/* The configuration file of a node (node/configuration.py). Settings that differ between pods are flags. */}}
{{- define "sluice.nodeConfiguration" -}}
{{- $values := .root.Values -}}
cluster: {{ $values.cluster | quote }}
roles: [{{ .component }}]
etcd:
  endpoints: {{ include "sluice.etcdEndpoints" .root }}
  {{- if $values.etcd.auth.existingSecret }}
  user: {{ $values.etcd.auth.user | quote }}
  password_file: /run/secrets/etcd-auth/password
  {{- end }}
  {{- if $values.etcd.tls.existingSecret }}
  ca: /run/secrets/etcd-tls/ca.crt
  {{- if $values.etcd.tls.clientCertificate }}
  cert: /run/secrets/etcd-tls/tls.crt
  key: /run/secrets/etcd-tls/tls.key
  {{- end }}
  {{- end }}
session_ttl: {{ $values.sessionTtl }}
admin:
  address: 0.0.0.0:{{ $values.admin.port }}
  {{- if $values.admin.tls.existingSecret }}
  cert: /run/secrets/admin-tls/tls.crt
  key: /run/secrets/admin-tls/tls.key
  {{- if $values.admin.tls.clientCertificates }}
  client_ca: /run/secrets/admin-tls/ca.crt
  {{- end }}
  {{- end }}
  {{- if $values.admin.tokens.existingSecret }}
  token_file: /run/secrets/admin-tokens/tokens
  {{- end }}
  {{- if $values.admin.allowUnauthenticated }}
  allow_unauthenticated: true
  {{- end }}
http_address: 0.0.0.0:8301
{{- if $values.console.enabled }}
console_address: 0.0.0.0:{{ $values.console.port }}
{{- end }}
{{- if eq .component "processor" }}
spark:
  master: {{ include "sluice.sparkMaster" .root | quote }}
  conf:
    {{- range $name, $value := mustMergeOverwrite (include "sluice.sparkConf" .root | fromYaml) (deepCopy $values.spark.conf) }}
    {{ $name }}: {{ $value | toString | quote }}
    {{- end }}
{{- end }}
secret_directories: {{ $values.credentials.directories | toJson }}
grace: {{ $values.grace }}
log_format: json
{{- end -}}

{{- define "sluice.sparkMaster" -}}
{{- if eq .Values.spark.master "kubernetes" -}}
k8s://https://kubernetes.default.svc
{{- else if eq .Values.spark.master "local" -}}
local[{{ .Values.spark.local.cores }}]
{{- else -}}
{{ .Values.spark.master }}
{{- end -}}
{{- end -}}

{{/* Driver and executors use fixed ports, which the NetworkPolicy opens; the executors of a standalone cluster may share a machine, so they
take free ones. Executor pods have no fixed name prefix: if a driver restarts in its pod, the names of its new executors must differ from
those that are still ending. The driver's pod owns them, so they are deleted with it. */}}
{{- define "sluice.sparkConf" -}}
{{- $values := .Values -}}
{{- $executor := $values.spark.executor -}}
spark.driver.memory: {{ $values.spark.driver.memory | quote }}
{{- if ne $values.spark.master "local" }}
spark.driver.bindAddress: 0.0.0.0
spark.driver.port: {{ $values.spark.driver.port }}
spark.driver.blockManager.port: {{ $values.spark.driver.blockManagerPort }}
spark.sluice.handOver.port: {{ $values.spark.driver.handOverPort }}
spark.executor.cores: {{ $executor.cores }}
spark.executor.memory: {{ $executor.memory | quote }}
spark.dynamicAllocation.enabled: true
spark.dynamicAllocation.shuffleTracking.enabled: true
spark.dynamicAllocation.minExecutors: {{ $executor.min }}
spark.dynamicAllocation.initialExecutors: {{ $executor.min }}
spark.dynamicAllocation.maxExecutors: {{ $executor.max }}
spark.dynamicAllocation.executorIdleTimeout: {{ $executor.idleTimeout }}
{{- end }}
{{- if hasPrefix "spark://" $values.spark.master }}
spark.cores.max: {{ mul $executor.max $executor.cores }}
{{- end }}
{{- if eq $values.spark.master "kubernetes" }}
spark.pyspark.python: /opt/sluice/bin/python
spark.blockManager.port: {{ $values.spark.driver.blockManagerPort }}
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "sluice.image" . }}
spark.kubernetes.container.image.pullPolicy: {{ $values.image.pullPolicy }}
spark.kubernetes.executor.podTemplateFile: /etc/sluice/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "sluice.fullname" . }}-executor
spark.kubernetes.driver.ownPersistentVolumeClaim: false
spark.kubernetes.driver.reusePersistentVolumeClaim: false
spark.kubernetes.executor.request.cores: {{ default $executor.cores $executor.cpuRequest | quote }}
spark.executor.memoryOverhead: {{ $executor.memoryOverhead | quote }}
{{- end }}
{{- end -}}

{{- define "sluice.executorPod" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
    app.kubernetes.io/component: executor
spec:
  automountServiceAccountToken: false
  {{- include "sluice.pullSecrets" . | nindent 2 }}
  securityContext: {{- include "sluice.podSecurity" . | nindent 4 }}
  {{- include "sluice.placement" (dict "of" .Values.spark.executor) | nindent 2 }}
  topologySpreadConstraints:
    {{- include "sluice.spread" (dict "root" . "of" dict "component" "executor") | nindent 4 }}
  containers:
    - name: executor
      image: {{ include "sluice.image" . }}
      securityContext: {{- include "sluice.containerSecurity" . | nindent 8 }}
      {{- with .Values.extraEnv }}
      env: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts: {{- include "sluice.sharedMounts" . | nindent 8 }}
  volumes: {{- include "sluice.sharedVolumes" . | nindent 4 }}
{{- end -}}

{{- define "sluice.clientConfiguration" -}}
server: {{ include "sluice.adminAddress" . }}
{{- if .Values.admin.tls.existingSecret }}
ca: /run/secrets/admin-tls/ca.crt
{{- end }}
{{- if .Values.admin.tls.clientSecret }}
cert: /run/secrets/admin-client/tls.crt
key: /run/secrets/admin-client/tls.key
{{- end }}
{{- if .Values.admin.tokens.existingSecret }}
token_file: /run/secrets/admin-tokens/operator
{{- end }}
{{- end -}}
