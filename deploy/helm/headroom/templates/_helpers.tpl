{{/* Names are at most 63 characters long, the longest suffix ("-manager-config") included. */}}
{{- define "headroom.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "headroom.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The helpers below take (list $ "component"). */}}

{{- define "headroom.componentName" -}}
{{- printf "%s-%s" (include "headroom.fullname" (first .)) (last .) }}
{{- end }}

{{- define "headroom.selectorLabels" -}}
app.kubernetes.io/name: {{ include "headroom.name" (first .) }}
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* Without the chart's version: a new chart alone is no reason to roll pods. */}}
{{- define "headroom.podLabels" -}}
{{- with (first .).Values.labels }}
{{- toYaml . }}
{{ end -}}
{{ include "headroom.selectorLabels" . }}
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/part-of: headroom
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
{{- end }}

{{- define "headroom.labels" -}}
{{- $chart := (first .).Chart }}
{{- include "headroom.podLabels" . }}
helm.sh/chart: {{ printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "headroom.serviceAccountName" -}}
{{- $account := (index (first .).Values (last .)).serviceAccount }}
{{- default (ternary (include "headroom.componentName" .) "default" $account.create) $account.name }}
{{- end }}

{{/* The helpers below take $. */}}

{{- define "headroom.configNamespace" -}}
{{- default .Release.Namespace .Values.colocationConfig.namespace }}
{{- end }}

{{/* Whether the manager serves the admission webhook, "" for no. A dry run changes nothing, pods included. */}}
{{- define "headroom.webhook" -}}
{{- $manager := .Values.manager }}
{{- if and $manager.enabled $manager.webhook.enabled (not $manager.settings.dryRun) }}true{{ end }}
{{- end }}

{{/* Where the autoscaler's nodes come from, "" for no autoscaler. */}}
{{- define "headroom.cloudProvider" -}}
{{- if .Values.manager.enabled }}{{ .Values.manager.autoscaler.cloudProvider }}{{ end }}
{{- end }}

{{/* Keeps pods of the release off the simulated cloud's Nodes, which run nothing; empty for any other cloud. */}}
{{- define "headroom.onMachines" -}}
{{- if eq (include "headroom.cloudProvider" .) "simulated" }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - {key: headroom.io/simulated-cloud, operator: DoesNotExist}
{{- end }}
{{- end }}

{{/* The ConfigMap that it writes its status to. */}}
{{- define "headroom.autoscalerStatus" -}}
{{- default "cluster-autoscaler-status" .Values.manager.settings.statusConfigMapName }}
{{- end }}

{{/* The tiers that the manager offers, as {"tiers": [...]}. */}}
{{- define "headroom.offers" -}}
tiers: {{ default "mid,batch" .Values.manager.settings.offers | splitList "," | toJson }}
{{- end }}

{{/* Whether the manager may evict pods, "" for no. */}}
{{- define "headroom.eviction" -}}
{{- $given := .Values.rbac.eviction }}
{{- if eq (toString $given) "auto" }}
{{- if .Values.colocationConfig.create }}
{{- $strategy := .Values.colocationConfig.strategy }}
{{- range prepend (default list $strategy.nodeConfigs) $strategy }}
{{- $after := toString (default "auto" .evictionAfterSeconds) }}
{{- if or (eq (default "" .midFormula) "seed-mixed") (not (has $after (list "auto" "off"))) }}true{{ end }}
{{- end }}
{{- end }}
{{- else if $given }}true{{ end }}
{{- end }}

{{- define "headroom.image" -}}
{{- if .Values.image.digest -}}
image: {{ printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
{{- end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "headroom.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Probes take (list $ values "/path"); neither path asks the API server. */}}
{{- define "headroom.probe" -}}
httpGet:
  path: {{ last . }}
  port: http
  {{- if (first .).Values.access.tls }}
  scheme: HTTPS
  {{- end }}
{{ toYaml (index . 1) }}
{{- end }}

{{/* What the processes are told of who may ask. */}}
{{- define "headroom.authorization" -}}
{{ ternary "delegated" "off" .Values.access.authorization }}
{{- end }}

{{/* Whether the manager serves a certificate, "" for no. */}}
{{- define "headroom.servesCertificate" -}}
{{- if and .Values.manager.enabled (or .Values.access.tls (include "headroom.webhook" .)) }}true{{ end }}
{{- end }}

{{/* Rules of a process that asks the API server who somebody is, and what they may. */}}
{{- define "headroom.reviewRules" -}}
{{- if .Values.access.authorization }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{/* Names that the manager's certificate bears, with commas: its Services', and one that is the same everywhere. */}}
{{- define "headroom.certificateHosts" -}}
{{- $namespace := .Release.Namespace }}
{{- $hosts := list }}
{{- range $component := list "webhook" "manager" }}
{{- $hosts = append $hosts (printf "%s.%s.svc" (include "headroom.componentName" (list $ $component)) $namespace) }}
{{- end }}
{{- append $hosts "headroom-manager" | uniq | join "," }}
{{- end }}
