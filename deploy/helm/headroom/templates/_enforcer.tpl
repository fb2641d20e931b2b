{{/* The enforcer's part of the agent's pods; all take $ and are empty without it. */}}

{{- define "headroom.enforcer.container" -}}
{{- if .Values.enforcer.enabled }}
- name: enforcer
  {{- include "headroom.image" (list . "agent") | nindent 2 }}
  command: [python, -m, agent.enforcer]
  args:
    - --config=/etc/headroom/enforcer.yaml
    - --cgroup-root=/host/cgroup
    - --orders-dir=/run/headroom/orders
    - --status-dir=/run/headroom/status
    {{- with .Values.agent.settings.cgroupParent }}
    - --cgroup-parent={{ . }}
    {{- end }}
  securityContext:
    runAsNonRoot: false # cgroups are root's; without capabilities that is all it can do
    runAsUser: 0
    runAsGroup: 0
    {{- include "headroom.securityContext" . | nindent 4 }}
    {{- with .Values.enforcer.seLinuxOptions }}
    seLinuxOptions:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  resources:
    {{- toYaml .Values.enforcer.resources | nindent 4 }}
  volumeMounts:
    - name: config
      mountPath: /etc/headroom
      readOnly: true
    - name: cgroup
      mountPath: /host/cgroup
      {{- if .Values.enforcer.kubepods }}
      readOnly: true
      recursiveReadOnly: IfPossible # on cgroup v1 each controller is a mount of its own below it
      {{- end }}
    {{- range $number, $path := .Values.enforcer.kubepods }}
    - name: kubepods-{{ $number }}
      mountPath: /host/cgroup{{ trimPrefix "/sys/fs/cgroup" $path }}
    {{- end }}
    - name: orders
      mountPath: /run/headroom/orders
      readOnly: true
    - name: status
      mountPath: /run/headroom/status
{{- end }}
{{- end }}

{{- define "headroom.enforcer.agentArgs" -}}
{{- if .Values.enforcer.enabled }}
- --enforcer-orders-dir=/run/headroom/orders
- --enforcer-status-dir=/run/headroom/status
{{- end }}
{{- end }}

{{/* The token is the agent's alone, so it is mounted by hand. */}}
{{- define "headroom.enforcer.agentMounts" -}}
{{- if .Values.enforcer.enabled }}
- name: orders
  mountPath: /run/headroom/orders
- name: status
  mountPath: /run/headroom/status
  readOnly: true
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}
{{- end }}

{{- define "headroom.enforcer.volumes" -}}
{{- if .Values.enforcer.enabled }}
{{- range $number, $path := .Values.enforcer.kubepods }}
- name: kubepods-{{ $number }}
  hostPath:
    path: {{ $path }}
    type: Directory # never made: it would be a cgroup
{{- end }}
- name: orders
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: status
  emptyDir: {medium: Memory, sizeLimit: 8Mi}
- name: token
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}
{{- end }}
