{{- define "extauthz.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* 50 characters and no more, so that there is room for -headless. */}}
{{- define "extauthz.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "extauthz.selectorLabels" -}}
app.kubernetes.io/name: {{ include "extauthz.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "extauthz.ownLabels" -}}
{{ include "extauthz.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "extauthz.labels" -}}
{{ include "extauthz.ownLabels" . }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "extauthz.serviceAccountName" -}}
{{- default (ternary (include "extauthz.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "extauthz.image" -}}
{{- with .Values.image.digest }}
{{- printf "%s@%s" $.Values.image.repository . }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "extauthz.rulesConfigMap" -}}
{{- default (printf "%s-rules" (include "extauthz.fullname" .)) .Values.rulesConfigMap }}
{{- end }}

{{- /* What a pod of ours may do: nothing. */}}
{{- define "extauthz.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.podSecurityContext.runAsUser }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with .Values.podSecurityContext.runAsGroup }}
runAsGroup: {{ int64 . }}
{{- end }}
{{- with .Values.podSecurityContext.fsGroup }}
fsGroup: {{ int64 . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "extauthz.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The environment, as YAML: that of the settings, and what other values come to. */}}
{{- define "extauthz.environment" -}}
{{- /* Where the deployment mounts the rules: RUNTIME_ROOT/config. Without this directory the service does not start. */}}
RUNTIME_ROOT: /srv/runtime_data/current
{{- with .Values.tls }}
{{- if .existingSecret }}
GRPC_SERVER_USE_TLS: "true"
GRPC_SERVER_TLS_CERT: /etc/extauthz/tls/tls.crt
GRPC_SERVER_TLS_KEY: /etc/extauthz/tls/tls.key
{{- if .clientCAKey }}
GRPC_CLIENT_TLS_CACERT: /etc/extauthz/tls/ca.crt
{{- end }}
{{- with .clientName }}
GRPC_CLIENT_TLS_SAN: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- /* The listeners have no TLS, except that of gRPC with tls.existingSecret, and listen on the pod's address. */}}
{{- if or .Values.networkPolicy.enabled .Values.plaintext }}
GRPC_PLAINTEXT: allow
{{- end }}
{{- /* Prometheus scrapes the debug port from another pod. */}}
DEBUG_HOST: 0.0.0.0
DRAIN_DELAY: {{ printf "%ds" (int64 .Values.drain.delaySeconds) }}
DRAIN_TIMEOUT: {{ printf "%ds" (int64 .Values.drain.timeoutSeconds) }}
{{- with .Values.redis }}
{{- if .existingSecret }}
REDIS_URL_FILE: /etc/extauthz/redis/url
{{- if .passwordKey }}
REDIS_AUTH_FILE: /etc/extauthz/redis/password
{{- end }}
{{- if .sentinelPasswordKey }}
REDIS_SENTINEL_AUTH_FILE: /etc/extauthz/redis/sentinel-password
{{- end }}
{{- if .perSecondURLKey }}
REDIS_PERSECOND: "true"
REDIS_PERSECOND_URL_FILE: /etc/extauthz/redis/per-second-url
{{- end }}
{{- if .perSecondPasswordKey }}
REDIS_PERSECOND_AUTH_FILE: /etc/extauthz/redis/per-second-password
{{- end }}
{{- if .perSecondSentinelPasswordKey }}
REDIS_PERSECOND_SENTINEL_AUTH_FILE: /etc/extauthz/redis/per-second-sentinel-password
{{- end }}
{{- if .tls.caKey }}
REDIS_TLS_CACERT: /etc/extauthz/redis-tls/ca.crt
{{- end }}
{{- if .tls.certKey }}
REDIS_TLS_CLIENT_CERT: /etc/extauthz/redis-tls/tls.crt
REDIS_TLS_CLIENT_KEY: /etc/extauthz/redis-tls/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.apiKeys }}
{{- if .existingSecret }}
API_KEY_SECRET_FILE: /etc/extauthz/api-key-secret/secret
{{- if .previousKey }}
API_KEY_SECRET_PREVIOUS_FILE: /etc/extauthz/api-key-secret/previous
{{- end }}
{{- end }}
{{- if .fileSecret }}
API_KEYS_FILE: /etc/extauthz/api-keys/keys.jsonl
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- /* Numbers of values.yaml are floating-point numbers here, and 1000000 would be 1e+06. */}}
{{ $name }}: {{ kindIs "float64" $value | ternary (int64 $value) $value | toString | quote }}
{{- end }}
{{- end }}

{{- /* Values that are right each by itself and do not fit together. All at once, each with its remedy. */}}
{{- define "extauthz.check" -}}
{{- $wrong := list }}
{{- with .Values }}
{{- $made := dict "GRPC_PLAINTEXT" "plaintext" "CONFIG_TYPE" "rules" "RUNTIME_ROOT" "rules" "RUNTIME_SUBDIRECTORY" "rules" "RUNTIME_APPDIRECTORY" "rules"
  "GRPC_SERVER_USE_TLS" "tls.existingSecret" "GRPC_SERVER_TLS_CERT" "tls.certKey" "GRPC_SERVER_TLS_KEY" "tls.keyKey"
  "GRPC_CLIENT_TLS_CACERT" "tls.clientCAKey" "GRPC_CLIENT_TLS_SAN" "tls.clientName"
  "DRAIN_DELAY" "drain.delaySeconds" "DRAIN_TIMEOUT" "drain.timeoutSeconds"
  "BACKEND_TYPE" "redis.existingSecret" "REDIS_URL" "redis.existingSecret" "REDIS_AUTH" "redis.passwordKey"
  "REDIS_SENTINEL_AUTH" "redis.sentinelPasswordKey" "REDIS_PERSECOND" "redis.perSecondURLKey" "REDIS_PERSECOND_URL" "redis.perSecondURLKey"
  "REDIS_PERSECOND_AUTH" "redis.perSecondPasswordKey" "REDIS_PERSECOND_SENTINEL_AUTH" "redis.perSecondSentinelPasswordKey"
  "REDIS_TLS_CACERT" "redis.tls.caKey" "REDIS_TLS_CLIENT_CERT" "redis.tls.certKey" "REDIS_TLS_CLIENT_KEY" "redis.tls.keyKey"
  "API_KEY_SECRET" "apiKeys.existingSecret" "API_KEY_SECRET_PREVIOUS" "apiKeys.previousKey" "API_KEYS_FILE" "apiKeys.fileSecret" }}
{{- $fixed := list "HOST" "PORT" "GRPC_HOST" "GRPC_PORT" "GRPC_UDS" "DEBUG_HOST" "DEBUG_PORT" "MEMORY_SNAPSHOT_PATH" }}
{{- range $name := keys .settings | sortAlpha }}
{{- if hasKey $made $name }}
{{- $wrong = append $wrong (printf "settings.%s must not be set: use %s" $name (get $made $name)) }}
{{- else if or (has $name $fixed) (hasPrefix "CONFIG_GRPC_XDS_" $name) (hasPrefix "XDS_CLIENT_" $name) }}
{{- $wrong = append $wrong (printf "settings.%s must not be set: the chart depends on its default" $name) }}
{{- end }}
{{- end }}
{{- $several := or .autoscaling.enabled (gt (int .replicas) 1) }}
{{- if and $several (not .redis.existingSecret) (not .separateLimits) }}
{{- $wrong = append $wrong (printf "%s: without Redis each replica counts alone, and clients get a multiple of their limits. Set redis.existingSecret, or separateLimits=true if that is intended" (ternary "autoscaling.enabled=true" (printf "replicas=%d" (int .replicas)) .autoscaling.enabled)) }}
{{- end }}
{{- if and .autoscaling.enabled (gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas)) }}
{{- $wrong = append $wrong (printf "autoscaling.minReplicas=%d is more than autoscaling.maxReplicas=%d" (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas)) }}
{{- end }}
{{- if and .autoscaling.enabled (not (dig "requests" "cpu" "" .resources)) (not (dig "limits" "cpu" "" .resources)) }}
{{- $wrong = append $wrong "autoscaling.enabled=true scales by the CPU request: set resources.requests.cpu" }}
{{- end }}
{{- range $name := keys (include "extauthz.ownLabels" $ | fromYaml) | sortAlpha }}
{{- if hasKey $.Values.labels $name }}
{{- $wrong = append $wrong (printf "labels: %s belongs to the chart and must not be set" $name) }}
{{- end }}
{{- end }}
{{- range $name := keys (include "extauthz.selectorLabels" $ | fromYaml) | sortAlpha }}
{{- if hasKey $.Values.podLabels $name }}
{{- $wrong = append $wrong (printf "podLabels: %s belongs to the chart and must not be set" $name) }}
{{- end }}
{{- end }}
{{- if not (or .networkPolicy.enabled .plaintext) }}
{{- $wrong = append $wrong "networkPolicy.enabled=false opens the ports, which have no TLS, to all pods: set networkPolicy.enabled=true, or plaintext=allow if a mesh or another network policy protects them" }}
{{- end }}
{{- if and .tls.clientCAKey (not .tls.existingSecret) }}
{{- $wrong = append $wrong "tls.clientCAKey is a key of tls.existingSecret: set that, too" }}
{{- end }}
{{- if and .tls.clientName (not .tls.clientCAKey) }}
{{- $wrong = append $wrong "tls.clientName requires tls.clientCAKey: without it, clients need no certificate" }}
{{- end }}
{{- if and .rules .rulesConfigMap }}
{{- $wrong = append $wrong "rules and rulesConfigMap are both set: set only one of them" }}
{{- end }}
{{- with .redis }}
{{- if and .tls.existingSecret (not .existingSecret) }}
{{- $wrong = append $wrong "redis.tls.existingSecret requires redis.existingSecret: without it, the service does not use Redis" }}
{{- end }}
{{- if and .passwordKey (not .existingSecret) }}
{{- $wrong = append $wrong "redis.passwordKey is a key of redis.existingSecret: set that, too" }}
{{- end }}
{{- if and (or .sentinelPasswordKey .perSecondURLKey) (not .existingSecret) }}
{{- $wrong = append $wrong "redis.sentinelPasswordKey and redis.perSecondURLKey are keys of redis.existingSecret: set that, too" }}
{{- end }}
{{- if and (or .perSecondPasswordKey .perSecondSentinelPasswordKey) (not .perSecondURLKey) }}
{{- $wrong = append $wrong "redis.perSecondPasswordKey and redis.perSecondSentinelPasswordKey are for a second Redis: set redis.perSecondURLKey, too" }}
{{- end }}
{{- if and (or .tls.caKey .tls.certKey .tls.keyKey) (not .tls.existingSecret) }}
{{- $wrong = append $wrong "redis.tls.caKey, certKey and keyKey are keys of redis.tls.existingSecret: set that, too" }}
{{- end }}
{{- if and .tls.existingSecret (not .tls.caKey) (not .tls.certKey) }}
{{- $wrong = append $wrong "redis.tls.existingSecret is set, but none of its keys: set redis.tls.caKey, or certKey and keyKey, or all three" }}
{{- end }}
{{- if ne (empty .tls.certKey) (empty .tls.keyKey) }}
{{- $wrong = append $wrong "redis.tls.certKey and redis.tls.keyKey go together: set both or none" }}
{{- end }}
{{- end }}
{{- with .apiKeys }}
{{- if and .fileSecret (not .existingSecret) }}
{{- $wrong = append $wrong "apiKeys.fileSecret: keys are hashed with a server secret: set apiKeys.existingSecret, too" }}
{{- end }}
{{- if and .previousKey (not .existingSecret) }}
{{- $wrong = append $wrong "apiKeys.previousKey is a key of apiKeys.existingSecret: set that, too" }}
{{- end }}
{{- end }}
{{- if and (not .serviceAccount.create) .serviceAccount.annotations }}
{{- $wrong = append $wrong "serviceAccount.annotations requires serviceAccount.create=true: otherwise the chart does not create a ServiceAccount" }}
{{- end }}
{{- end }}
{{- if $wrong }}
{{- fail (printf "the values have mistakes:\n%s\n" (join "\n" $wrong)) }}
{{- end }}
{{- end }}

{{- /* The labels of the pod of `helm test`. The network policy admits this pod, and no Service selects it. */}}
{{- define "extauthz.testLabels" -}}
app.kubernetes.io/name: {{ include "extauthz.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
