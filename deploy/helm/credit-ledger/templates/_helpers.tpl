{{- define "ledger.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "ledger.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ledger.labels" -}}
{{ include "ledger.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What every pod has: no token of the cluster, no root, a file system that only /tmp of can be written. */}}
{{- define "ledger.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "ledger.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "ledger.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* The settings as environment variables. They stand in each pod, because the preparation runs before a ConfigMap of the chart is there. */}}
{{- define "ledger.environment" -}}
{{- $defaults := dict "LEDGER_HTTPS" "true" "LEDGER_TRUSTED_PROXIES" "1" "LEDGER_LOG_FORMAT" "json" "LEDGER_HOST" "0.0.0.0" "PORT" "8000" "LEDGER_PAGES_PORT" "8001" -}}
{{- if .Values.pgbouncer.enabled }}{{ $_ := set $defaults "DATABASE_BEHIND_PGBOUNCER" "true" }}{{ end -}}
{{- if .Values.ingress.hosts }}{{ $_ := set $defaults "ALLOWED_HOSTS" (join "," .Values.ingress.hosts) }}{{ end -}}
{{/* Not by merge, which takes false for a value that is missing. */}}
{{- range $name, $value := .Values.settings }}{{ $_ := set $defaults $name (toString $value) }}{{ end -}}
{{- range $name, $value := $defaults }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
