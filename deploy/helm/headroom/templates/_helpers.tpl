{{/* Names are at most 63 characters long, the longest suffix ("-manager-config") included. */}}
{{- define "headroom.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 48 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The helpers below take (list $ "component"). */}}

{{- define "headroom.componentName" -}}
{{- printf "%s-%s" (include "headroom.fullname" (first .)) (last .) }}
{{- end }}

{{- define "headroom.selectorLabels" -}}
app.kubernetes.io/name: {{ (first .).Chart.Name }}
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

{{/* Who tells agents which pods run on their nodes: the kubelet by itself where kubelets have certificates of the cluster's
     authority and authorize nodes/pods (1.33). Only a cluster of kubeadm says so; `helm template` cannot see it. */}}
{{- define "headroom.podsSource" -}}
{{- $chosen := .Values.agent.settings.podsSource }}
{{- if $chosen }}
{{- $chosen }}
{{- else if semverCompare "<1.33-0" .Capabilities.KubeVersion.Version -}}
api
{{- else }}
{{- $kubelet := dig "data" "kubelet" "{}" (lookup "v1" "ConfigMap" "kube-system" "kubelet-config") | fromYaml }}
{{- ternary "kubelet" "api" (eq true (dig "serverTLSBootstrap" false $kubelet)) }}
{{- end }}
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

{{/* Keeps agents on nodes with a kubelet and cgroups to measure: off those without machines, and off virtual ones, whose
     pods run elsewhere (Fargate, virtual kubelets, AKS' virtual nodes v2). Windows is the nodeSelector's. */}}
{{- define "headroom.onKubelets" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          {{- with (include "headroom.cloudNeeds" . | fromYaml).nodesWithoutMachines }}
          - {key: {{ . }}, operator: DoesNotExist}
          {{- end }}
          - {key: eks.amazonaws.com/compute-type, operator: NotIn, values: [fargate]}
          - {key: type, operator: NotIn, values: [virtual-kubelet]}
          - {key: virtualization, operator: NotIn, values: [virtualnode2]}
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

{{/* A container's image: takes (list $ "component"). */}}
{{- define "headroom.image" -}}
{{- $common := (first .).Values.image }}
{{- $own := (index (first .).Values (last .)).image }}
{{- if $common.digest }}
{{- fail "image.digest: agent and manager have an image each: set agent.image.digest and manager.image.digest" }}
{{- end }}
{{- if not (or $own.repository $common.repository) }}
{{- fail "image.repository: has to be set to where your nodes pull the images from (docs/how-to/release.md)" }}
{{- end }}
{{- $repository := default (printf "%s-%s" $common.repository (last .)) $own.repository }}
{{- if $own.digest -}}
image: {{ printf "%s@%s" $repository $own.digest | quote }}
{{- else -}}
image: {{ printf "%s:%s" $repository (default (first .).Chart.AppVersion $common.tag) | quote }}
{{- end }}
imagePullPolicy: {{ $common.pullPolicy }}
{{- end }}

{{- define "headroom.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A probe's handler takes (list $ "/path"). Both paths answer from memory, never from the API server. */}}
{{- define "headroom.probe" -}}
httpGet:
  path: {{ last . }}
  port: http
  {{- if (first .).Values.access.tls }}
  scheme: HTTPS
  {{- end }}
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

{{/* Refuses the settings of a process (root context, its name, its settings) that were removed. */}}
{{- define "headroom.refuseRemoved" -}}
{{- $process := index . 1 -}}
{{- $removed := get ((index . 0).Files.Get "files/removed-settings.json" | fromJson) $process -}}
{{- range $name, $_ := index . 2 -}}
{{- with get $removed $name -}}
{{- fail (printf "%s.settings.%s: this setting was removed. %s" $process $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The other owner of the definition in the cluster, "" without one; takes (list $ "name"). Only with crds.enabled=auto, and not by
     `helm template`, which sees no cluster. */}}
{{- define "headroom.crdOwner" -}}
{{- $root := first . }}
{{- if eq (toString $root.Values.crds.enabled) "auto" }}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (last .) }}
{{- $annotations := default dict .metadata.annotations }}
{{- $release := get $annotations "meta.helm.sh/release-name" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" }}
{{- if not (and (eq $release $root.Release.Name) (eq $namespace $root.Release.Namespace)) }}
{{- if $release }}release {{ $release }} in namespace {{ $namespace }}{{ else }}another owner{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses a component that another release has in this cluster, by the role that each has; takes (list $ "component"). */}}
{{- define "headroom.refuseSecond" -}}
{{- $root := first . }}
{{- $component := last . }}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items }}
{{- $labels := default dict .metadata.labels }}
{{- $of := list (get $labels "app.kubernetes.io/part-of") (get $labels "app.kubernetes.io/component") }}
{{- if deepEqual $of (list "headroom" $component) }}
{{- $release := get $labels "app.kubernetes.io/instance" }}
{{- $namespace := default $root.Release.Namespace (get (default dict .metadata.annotations) "meta.helm.sh/release-namespace") }}
{{- if not (deepEqual (list $release $namespace) (list $root.Release.Name $root.Release.Namespace)) }}
{{- fail (printf "release %s in namespace %s is the %s of this cluster already, and two would overwrite each other's values: upgrade that release, uninstall it, or set %s.enabled=false" $release $namespace $component $component) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
