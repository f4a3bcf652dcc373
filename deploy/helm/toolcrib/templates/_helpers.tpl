{{- define "toolcrib.labels" -}}
app.kubernetes.io/name: toolcrib
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "toolcrib.selector" -}}
app.kubernetes.io/name: toolcrib
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "toolcrib.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "toolcrib.secret" -}}
{{ required "Set `secret` to the name of a Secret with the server's secrets; values.yaml lists its keys." .Values.secret }}
{{- end }}

{{- define "toolcrib.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
{{- end }}
