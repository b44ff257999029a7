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
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
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

{{/* An Ingress for the Service `service` of the root, with the values `of`. */}}
{{- define "sluice.ingress" -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ .service }}
  labels: {{- include "sluice.labels" .root | nindent 4 }}
  {{- with .of.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .of.className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with .of.tlsSecret }}
  tls:
    - {hosts: [{{ $.of.host }}], secretName: {{ . }}}
  {{- end }}
  rules:
    - host: {{ .of.host }}
      http:
        paths:
          - path: /
            pathType: Prefix
            backend: {service: {name: {{ .service }}, port: {name: {{ .port }}}}}
{{- end -}}

{{/* A quantity of Kubernetes as a number. */}}
{{- define "sluice.quantity" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- mulf (float64 $number) (default 1.0 (get $units (trimPrefix $number $text))) -}}
{{- end -}}

{{- define "sluice.etcdEndpoints" -}}
{{- if .Values.etcd.dev.enabled -}}
{{- list (printf "%s-etcd.%s.svc:2379" (include "sluice.fullname" .) .Release.Namespace) | toJson -}}
{{- else -}}
{{- .Values.etcd.endpoints | toJson -}}
{{- end -}}
{{- end -}}
