{{- define "cascade.pod" -}}
metadata:
  labels:
    {{- include "cascade.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/settings: {{ include "cascade.settings" . | sha256sum }}
    {{- /* A release that is watched is rolled out by the process itself, and restarts nothing. */}}
    {{- if and .Values.release.yaml (not .Values.settings.watch_release) }}
    checksum/release: {{ .Values.release.yaml | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "cascade.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "cascade.graceSeconds" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    - name: cascade
      image: {{ include "cascade.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/cascade/settings/settings.yaml]
      {{- with .Values.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: 8787}
        {{- if .Values.admin.reachable }}
        - {name: admin, containerPort: 8788}
        {{- end }}
      # Alive from the first moment; ready once the stages have started, and not while it drains.
      startupProbe: { {{- include "cascade.probe" (dict "root" . "path" "/livez") }}, periodSeconds: 1, failureThreshold: 60}
      livenessProbe: { {{- include "cascade.probe" (dict "root" . "path" "/livez") }}, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
      readinessProbe: { {{- include "cascade.probe" (dict "root" . "path" "/readyz") }}, periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 1}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: settings, mountPath: /etc/cascade/settings, readOnly: true}
        {{- if or .Values.release.yaml .Values.release.existingConfigMap }}
        - {name: release, mountPath: /etc/cascade/release, readOnly: true}
        {{- end }}
        {{- range $i, $name := include "cascade.secrets" . | fromJsonArray }}
        - {name: secret-{{ $i }}, mountPath: {{ printf "/run/secrets/cascade/%s" $name | quote }}, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        {{- if .Values.state.enabled }}
        - {name: state, mountPath: /var/lib/cascade}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: settings
      configMap: {name: {{ include "cascade.fullname" . }}, items: [{key: settings.yaml, path: settings.yaml}]}
    {{- if .Values.release.yaml }}
    - name: release
      configMap: {name: {{ include "cascade.fullname" . }}, items: [{key: release.yaml, path: release.yaml}]}
    {{- else if .Values.release.existingConfigMap }}
    - name: release
      configMap: {name: {{ .Values.release.existingConfigMap | quote }}}
    {{- end }}
    {{- range $i, $name := include "cascade.secrets" . | fromJsonArray }}
    - name: secret-{{ $i }}
      secret: {secretName: {{ $name | quote }}, defaultMode: 0440}
    {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: {{ .Values.tmpSize }}}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "cascade.selector" . | nindent 10 }}
    {{- end }}
{{- end }}
