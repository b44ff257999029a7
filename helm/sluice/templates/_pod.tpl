{{/* Parts that nodes, executors and jobs share. Secrets have the same paths in nodes and executors, because both open connections. */}}

{{- define "sluice.podSecurity" -}}
{{- toYaml .Values.securityContext.pod -}}
{{- end -}}

{{- define "sluice.containerSecurity" -}}
{{- toYaml .Values.securityContext.container -}}
{{- end -}}

{{- define "sluice.sharedVolumes" -}}
- name: tmp
  emptyDir: {{- if .Values.tmp.sizeLimit }} {sizeLimit: {{ .Values.tmp.sizeLimit }}}{{ else }} {}{{ end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- with include "sluice.credentialsSecret" . }}
- name: credentials
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.etcd.tls.existingSecret }}
- name: etcd-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.etcd.auth.existingSecret }}
- name: etcd-auth
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "sluice.sharedMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- if include "sluice.credentialsSecret" . }}
- {name: credentials, mountPath: /run/secrets/sluice, readOnly: true}
{{- end }}
{{- if .Values.etcd.tls.existingSecret }}
- {name: etcd-tls, mountPath: /run/secrets/etcd-tls, readOnly: true}
{{- end }}
{{- if .Values.etcd.auth.existingSecret }}
- {name: etcd-auth, mountPath: /run/secrets/etcd-auth, readOnly: true}
{{- end }}
{{- end -}}

{{/* The files that the command line needs to call the admin API. */}}
{{- define "sluice.clientVolumes" -}}
- name: config
  configMap: {name: {{ include "sluice.fullname" . }}}
{{- with .Values.admin.tls.existingSecret }}
- name: admin-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.admin.tls.clientSecret }}
- name: admin-client
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.admin.tokens.existingSecret }}
- name: admin-tokens
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "sluice.clientMounts" -}}
- {name: config, mountPath: /etc/sluice, readOnly: true}
{{- if .Values.admin.tls.existingSecret }}
- {name: admin-tls, mountPath: /run/secrets/admin-tls, readOnly: true}
{{- end }}
{{- if .Values.admin.tls.clientSecret }}
- {name: admin-client, mountPath: /run/secrets/admin-client, readOnly: true}
{{- end }}
{{- if .Values.admin.tokens.existingSecret }}
- {name: admin-tokens, mountPath: /run/secrets/admin-tokens, readOnly: true}
{{- end }}
{{- end -}}

{{- define "sluice.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The placement of the pods of `of`, which is a part of the values. */}}
{{- define "sluice.placement" -}}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Spreads the nodes of one role (`component`) over hosts and zones as far as possible. */}}
{{- define "sluice.spread" -}}
{{- if .of.topologySpreadConstraints -}}
{{ toYaml .of.topologySpreadConstraints }}
{{- else -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "sluice.selector" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The container of a node. `component` is owner or processor; `args` are flags for this role only. */}}
{{- define "sluice.nodeContainer" -}}
{{- $root := .root -}}
name: sluice
image: {{ include "sluice.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  - server
  - --config=/etc/sluice/{{ .component }}.yaml
  - --name=$(POD_NAME)
  - --admin-advertise={{ .advertise }}:{{ $root.Values.admin.port }}
  {{- with .args }}
  {{- . | nindent 2 }}
  {{- end }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - {name: SLUICE_CONFIG, value: /etc/sluice/client.yaml}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: admin, containerPort: {{ $root.Values.admin.port }}}
  - {name: http, containerPort: 8301}
  {{- if $root.Values.console.enabled }}
  - {name: console, containerPort: {{ $root.Values.console.port }}}
  {{- end }}
  {{- if and (eq .component "processor") (ne $root.Values.spark.master "local") }}
  - {name: spark-driver, containerPort: {{ $root.Values.spark.driver.port }}}
  - {name: spark-blocks, containerPort: {{ $root.Values.spark.driver.blockManagerPort }}}
  - {name: hand-over, containerPort: {{ $root.Values.spark.driver.handOverPort }}}
  {{- end }}
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 3
  timeoutSeconds: 3
lifecycle:
  preStop:
    exec:
      command: [sh, -c, {{ .preStop | quote }}]
resources: {{- toYaml .of.resources | nindent 2 }}
securityContext: {{- include "sluice.containerSecurity" $root | nindent 2 }}
volumeMounts:
  {{- include "sluice.sharedMounts" $root | nindent 2 }}
  {{- include "sluice.clientMounts" $root | nindent 2 }}
{{- end -}}

{{/* The checksum restarts pods when the ConfigMap changes. Secrets are read anew without a restart. */}}
{{- define "sluice.podMetadata" -}}
labels:
  {{- include "sluice.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  sluice/node: "true"
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/configuration: {{ include (print .root.Template.BasePath "/configmap.yaml") .root | sha256sum }}
  {{- with .of.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
