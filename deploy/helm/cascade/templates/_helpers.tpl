{{- define "cascade.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* 58 letters: "-pods" goes behind it. */}}
{{- define "cascade.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 58 | trimSuffix "-" }}
{{- else if contains (include "cascade.name" .) .Release.Name }}
{{- .Release.Name | trunc 58 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "cascade.name" .) | trunc 58 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "cascade.selector" -}}
app.kubernetes.io/name: {{ include "cascade.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cascade.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "cascade.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "cascade.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "cascade.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "cascade.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The settings file: the values' settings, and those that the chart sets. */}}
{{- define "cascade.settings" -}}
{{- $set := dict "host" "0.0.0.0" "port" 8787 "admin_port" 8788 }}
{{- $_ := set $set "admin_host" (ternary "0.0.0.0" "127.0.0.1" .Values.admin.reachable) }}
{{- with .Values.release }}
{{- if .location }}
{{- $_ := set $set "release" .location }}
{{- else if or .yaml .existingConfigMap }}
{{- $_ := set $set "release" "/etc/cascade/release/release.yaml" }}
{{- end }}
{{- end }}
{{- with .Values.keys }}
{{- if .secret }}{{- $_ := set $set "keys_file" (printf "/run/secrets/cascade/%s/%s" .secret .file) }}{{- end }}
{{- end }}
{{- with .Values.admin.keys }}
{{- if .secret }}{{- $_ := set $set "admin_keys_file" (printf "/run/secrets/cascade/%s/%s" .secret .file) }}{{- end }}
{{- end }}
{{- range $prefix, $tls := dict "tls_" .Values.tls "admin_tls_" .Values.admin.tls }}
{{- if $tls.secret }}
{{- $_ := set $set (print $prefix "certificate_file") (printf "/run/secrets/cascade/%s/tls.crt" $tls.secret) }}
{{- $_ := set $set (print $prefix "key_file") (printf "/run/secrets/cascade/%s/tls.key" $tls.secret) }}
{{- with $tls.clientCa }}
{{- if .secret }}{{- $_ := set $set (print $prefix "client_ca_file") (printf "/run/secrets/cascade/%s/%s" .secret .file) }}{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.state.enabled }}{{- $_ := set $set "state_folder" "/var/lib/cascade/state" }}{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if not (hasKey $set $name) }}{{- $_ := set $set $name $value }}{{- end }}
{{- end }}
{{- /* Not toYaml: it would write ten millions as 1e+07, which is no number in YAML 1.1. */}}
{{- range $name, $value := $set }}
{{ $name }}: {{ $value | toJson }}
{{- end }}
{{- end }}

{{/* Names of all Secrets that are mounted, each once. */}}
{{- define "cascade.secrets" -}}
{{- $tls := list .Values.tls.secret .Values.tls.clientCa.secret .Values.admin.tls.secret .Values.admin.tls.clientCa.secret }}
{{- concat .Values.secretMounts (list .Values.keys.secret .Values.admin.keys.secret) $tls | compact | uniq | toJson }}
{{- end }}

{{/* What a probe asks, at a path: the admin listener where the public one wants a certificate that the kubelet has not. */}}
{{- define "cascade.probe" -}}
{{- $admin := .root.Values.tls.clientCa.secret }}
{{- $tls := ternary .root.Values.admin.tls.secret .root.Values.tls.secret (not (not $admin)) -}}
httpGet: {path: {{ .path }}, port: {{ ternary "admin" "http" (not (not $admin)) }}{{ if $tls }}, scheme: HTTPS{{ end }}}
{{- end }}

{{/* Longer than a stop may take: draining, leftovers, 13 seconds (docs/admission.md), and some to end. */}}
{{- define "cascade.graceSeconds" -}}
{{- $drain := ternary .Values.settings.drain_seconds 2 (hasKey .Values.settings "drain_seconds") }}
{{- $leftover := ternary .Values.settings.leftover_seconds 20 (hasKey .Values.settings "leftover_seconds") }}
{{- add (ceil $drain) (ceil $leftover) 18 }}
{{- end }}

{{/* What values allow one by one and not together. */}}
{{- define "cascade.checked" -}}
{{- with .Values.release }}
{{- if gt (len (compact (list .yaml .existingConfigMap .location))) 1 }}
{{- fail "release: give one of yaml, existingConfigMap and location" }}
{{- end }}
{{- end }}
{{- if and .Values.settings.watch_release (not (compact (list .Values.release.yaml .Values.release.existingConfigMap .Values.release.location))) }}
{{- fail "settings.watch_release: there is no release to watch; give one in release" }}
{{- end }}
{{- if and .Values.admin.reachable (not .Values.admin.keys.secret) (not .Values.admin.tls.clientCa.secret) (not .Values.networkPolicy.enabled) }}
{{- fail "admin.reachable: whoever reaches the admin listener operates the sidecar; set admin.keys.secret, admin.tls.clientCa.secret or networkPolicy.enabled" }}
{{- end }}
{{- range $name, $tls := dict "tls" .Values.tls "admin.tls" .Values.admin.tls }}
{{- if and $tls.clientCa.secret (not $tls.secret) }}
{{- fail (printf "%s.clientCa.secret: without %s.secret there is no TLS that a client could show a certificate in" $name $name) }}
{{- end }}
{{- end }}
{{- if and .Values.tls.clientCa.secret (or (not .Values.admin.reachable) .Values.admin.tls.clientCa.secret) }}
{{- fail "tls.clientCa.secret: the kubelet has no certificate, and asks the admin listener how the pod is; set admin.reachable, and no admin.tls.clientCa.secret" }}
{{- end }}
{{- if .Values.serviceMonitor.enabled }}
{{- if not .Values.admin.reachable }}
{{- fail "serviceMonitor.enabled: metrics are on the admin listener; set admin.reachable" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.adminFrom) }}
{{- fail "serviceMonitor.enabled: the network policy keeps Prometheus out; name it in networkPolicy.adminFrom" }}
{{- end }}
{{- if and .Values.admin.keys.secret (not .Values.serviceMonitor.keySecret.name) }}
{{- fail "serviceMonitor.enabled: the admin listener asks for keys; name Prometheus' own in serviceMonitor.keySecret" }}
{{- end }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas must not be above autoscaling.maxReplicas" }}
{{- end }}
{{- end }}
