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

{{/* What the cloud provider needs of the cluster, as YAML: its own file says it, or the values. */}}
{{- define "headroom.cloudNeeds" -}}
{{- with include "headroom.cloudProvider" . }}
{{- $file := $.Files.Get (printf "files/cloudproviders/%s.yaml" .) }}
{{- $needs := $.Values.manager.autoscaler.needs }}
{{- if $file }}
{{- tpl $file $ }}
{{- else if kindIs "invalid" $needs }}
{{- fail (printf "manager.autoscaler.cloudProvider: no provider %q comes with Headroom; for one of another package, manager.autoscaler.needs says what it needs of the cluster, {} for nothing" .) }}
{{- else }}
{{- toYaml $needs }}
{{- end }}
{{- end }}
{{- end }}

{{/* Keeps pods of the release off a cloud's Nodes that have no machines, and run nothing; empty for other clouds. */}}
{{- define "headroom.onMachines" -}}
{{- with (include "headroom.cloudNeeds" . | fromYaml).nodesWithoutMachines }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - {key: {{ . }}, operator: DoesNotExist}
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
{{- $thresholds := .Values.colocationConfig.thresholds }}
{{- $cluster := default dict $thresholds.clusterStrategy }}
{{- range prepend (default list $thresholds.nodeStrategies) $cluster }}
{{- $enable := ternary .enable $cluster.enable (hasKey . "enable") }}
{{- $evict := ternary .evictEnabled $cluster.evictEnabled (hasKey . "evictEnabled") }}
{{- if and $enable $evict }}true{{ end }}
{{- end }}
{{- end }}
{{- else if $given }}true{{ end }}
{{- end }}

{{- define "headroom.image" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository: has to be set to where your nodes pull the image from (docs/how-to/release.md)" }}
{{- end }}
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

{{/* The processes' settings of access. */}}
{{- define "headroom.authorization" -}}
{{ ternary "delegated" "off" .Values.access.authorization }}
{{- end }}

{{/* Whether the manager serves a certificate, "" for no. */}}
{{- define "headroom.servesCertificate" -}}
{{- if and .Values.manager.enabled (or .Values.access.tls (include "headroom.webhook" .)) }}true{{ end }}
{{- end }}

{{/* Rules of a process that asks the API server to authenticate a caller, and what the caller may do. */}}
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

{{/* A duration in seconds: a number, or text as Go has it. */}}
{{- define "headroom.seconds" -}}
{{- if kindIs "string" . }}
{{- $units := dict "ns" 1e-9 "us" 1e-6 "µs" 1e-6 "ms" 1e-3 "s" 1.0 "m" 60.0 "h" 3600.0 }}
{{- $total := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-zµ]+" . -1 }}
{{- $total = addf $total (mulf (regexFind "^[0-9.]+" . | float64) (get $units (regexFind "[a-zµ]+$" .))) }}
{{- end }}
{{- $total }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{/* A quantity as a number. */}}
{{- define "headroom.quantity" -}}
{{- $units := dict "" 1.0 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- $text := toString . }}
{{- $unit := regexFind "[A-Za-z]*$" $text }}
{{- if hasKey $units $unit }}{{ mulf (trimSuffix $unit $text | float64) (get $units $unit) }}{{ else }}unknown{{ end }}
{{- end }}

{{/* Refuses requests above their limits, which the API server would refuse in the middle of an upgrade; takes (list "name" $resources). */}}
{{- define "headroom.checkResources" -}}
{{- $where := first . }}
{{- $resources := default dict (last .) }}
{{- $limits := default dict $resources.limits }}
{{- range $name, $request := default dict $resources.requests }}
{{- if hasKey $limits $name }}
{{- $asked := include "headroom.quantity" $request }}
{{- $limit := include "headroom.quantity" (get $limits $name) }}
{{- if and (ne $asked "unknown") (ne $limit "unknown") (gt (float64 $asked) (float64 $limit)) }}
{{- fail (printf "%s.requests.%s: %v is above the limit, which is %v" $where $name $request (get $limits $name)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses times of the lease by which no manager would start. */}}
{{- define "headroom.checkLease" -}}
{{- $settings := .Values.manager.settings }}
{{- $lease := dig "leaseDuration" 15 $settings }}
{{- $deadline := dig "renewDeadline" 10 $settings }}
{{- $retry := dig "retryPeriod" 2 $settings }}
{{- if le (include "headroom.seconds" $lease | float64) (include "headroom.seconds" $deadline | float64) }}
{{- fail (printf "manager.settings.leaseDuration: %v must be longer than renewDeadline, which is %v" $lease $deadline) }}
{{- end }}
{{- if le (include "headroom.seconds" $deadline | float64) (mulf 1.2 (include "headroom.seconds" $retry | float64)) }}
{{- fail (printf "manager.settings.renewDeadline: %v must be longer than 1.2 x retryPeriod, which is %v" $deadline $retry) }}
{{- end }}
{{- end }}
