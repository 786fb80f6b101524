{{- define "sallyport.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 48 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 48 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sallyport.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sallyport.labels" -}}
{{ include "sallyport.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sallyport.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The restricted profile of the pod security standards. */}}
{{- define "sallyport.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "sallyport.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* What the operator adds to every pod, and `own` to this one. */}}
{{- define "sallyport.extraEnv" -}}
{{- if .root.Values.caBundle.existingConfigMap }}
- name: NODE_EXTRA_CA_CERTS
  value: /etc/ssl/sallyport/ca.crt
{{- end }}
{{- range concat .root.Values.extraEnv (default list .own.extraEnv) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}

{{- define "sallyport.extraVolumeMounts" -}}
{{- if .root.Values.caBundle.existingConfigMap }}
- name: ca-bundle
  mountPath: /etc/ssl/sallyport
  readOnly: true
{{- end }}
{{- range concat .root.Values.extraVolumeMounts (default list .own.extraVolumeMounts) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}

{{- define "sallyport.extraVolumes" -}}
{{- with .root.Values.caBundle }}
{{- if .existingConfigMap }}
- name: ca-bundle
  configMap:
    name: {{ .existingConfigMap }}
    items:
      - key: {{ .key }}
        path: ca.crt
{{- end }}
{{- end }}
{{- range concat .root.Values.extraVolumes (default list .own.extraVolumes) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}

{{- /* By the control socket: no port, no certificate, and no flood of handshakes in its way. */}}
{{- define "sallyport.health" -}}
exec:
  command: [/usr/local/bin/node, --disable-sigusr1, /app/dist/scripts/sallyport.js, health]
{{- end }}
