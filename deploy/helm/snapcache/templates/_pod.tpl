{{- define "labels" -}}
app.kubernetes.io/name: snapcache
{{- if eq .Values.mode "hub" }}
app.kubernetes.io/component: hub
{{- end }}
{{- end }}

{{- define "files" -}}
agent.yaml: |
  {{- toYaml .Values.config | nindent 2 }}
{{- with .Values.kubeconfig }}
kubeconfig: |
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The metadata and the first fields of the pods of all modes. */ -}}
{{- define "pod" -}}
metadata:
  labels: {{- include "labels" . | nindent 4 }}
  # A change of the configuration is a roll-out.
  annotations: {checksum/config: {{ include "files" . | sha256sum }}}
spec:
  serviceAccountName: {{ .Release.Name }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: 60
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "container" -}}
image: {{ .Values.image }}
command: [snapcache, run, --config, /etc/snapcache/agent.yaml]
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /* Not empty if the agents have an authority, which is a Secret. */ -}}
{{- define "authority" -}}
{{- with .Values.config.kubernetesAPI -}}
{{- .authorityCertFile | default "" -}}
{{- end -}}
{{- end }}
