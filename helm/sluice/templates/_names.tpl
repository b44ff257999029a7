{{- define "sluice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sluice.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "sluice.selector" . }}
{{- end -}}

{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The full name of an image, from repository, tag and digest. */}}
{{- define "sluice.imageOf" -}}
{{ .repository }}:{{ .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "sluice.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- include "sluice.imageOf" (dict "repository" .Values.image.repository "tag" $tag "digest" .Values.image.digest) -}}
{{- end -}}

{{- define "sluice.processorAccount" -}}
{{- default (printf "%s-processor" (include "sluice.fullname" .)) .Values.serviceAccount.processorName -}}
{{- end -}}

{{- define "sluice.credentialsSecret" -}}
{{- if .Values.credentials.existingSecret -}}
{{- .Values.credentials.existingSecret -}}
{{- else if .Values.credentials.data -}}
{{- include "sluice.fullname" . }}-credentials
{{- end -}}
{{- end -}}

{{- define "sluice.processorHost" -}}
{{ include "sluice.fullname" . }}-processor.{{ .Release.Namespace }}.svc
{{- end -}}

{{- define "sluice.adminAddress" -}}
{{ include "sluice.fullname" . }}-admin.{{ .Release.Namespace }}.svc:{{ .Values.admin.port }}
{{- end -}}

{{- define "sluice.etcdEndpoints" -}}
{{- if .Values.etcd.dev.enabled -}}
{{- list (printf "%s-etcd.%s.svc:2379" (include "sluice.fullname" .) .Release.Namespace) | toJson -}}
{{- else -}}
{{- .Values.etcd.endpoints | toJson -}}
{{- end -}}
{{- end -}}
