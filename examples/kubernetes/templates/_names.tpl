{{/* Labels by which pods are found; of all managers, or of one role: (list $ ROLE). */}}
{{- define "dropflow.managers" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dropflow.role" -}}
{{ include "dropflow.managers" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "dropflow.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Arguments of a manager, as a list: (list $ ROLE). Each node has the name of its pod. */}}
{{- define "dropflow.arguments" -}}
{{- $ := index . 0 }}
{{- $role := index . 1 }}
{{- $name := $.Release.Name }}
{{- $own := list $role "--host=0.0.0.0" }}
{{- if eq $role "node" }}
{{- $own = concat $own (list (printf "--advertise=$(POD).%s-node" $name) "--name=$(POD)") }}
{{- $own = append $own (printf "--workers=%d" (int $.Values.node.workers)) }}
{{- $own = append $own (printf "--drain-seconds=%d" (int $.Values.node.drainSeconds)) }}
{{- else }}
{{- $own = append $own (printf "--advertise=%s-%s" $name $role) }}
{{- $own = append $own "--token-file=/key/dropflow/token" }}
{{- $own = append $own (printf "--public-url=%s" (get $.Values $role).publicUrl) }}
{{- end }}
{{- if eq $role "island" }}
{{- $own = append $own "--links-port=5556" }}
{{- $own = append $own (printf "--translator=%s" $.Values.translator.publicUrl) }}
{{- range $number := until (int $.Values.node.replicas) }}
{{- $own = append $own (printf "--nodes=http://%s-node-%d.%s-node:8000" $name $number $name) }}
{{- end }}
{{- else if eq $role "translator" }}
{{- $own = append $own (printf "--to=http://%s-island:8001" $name) }}
{{- end }}
{{- toYaml (concat $own (get $.Values $role).options) }}
{{- end }}
