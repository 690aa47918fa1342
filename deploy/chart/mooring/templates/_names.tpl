{{- define "mooring.labels" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "mooring.selector" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "mooring.features" -}}
{{- $on := list -}}
{{- range $name, $enabled := .Values.features }}{{ if $enabled }}{{ $on = append $on (printf "%s=%v" $name $enabled) }}{{ end }}{{ end -}}
{{- join "," $on -}}
{{- end }}
{{- define "mooring.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{/* Who may call the webhook, as CIDRs; "": all may. What was named, else the API servers where a cluster can be asked. */}}
{{- define "mooring.webhookCallers" -}}
{{- $found := list -}}
{{- with .Values.networkPolicy -}}
{{- if .webhookOpenToAll -}}
{{- else if .nodeCidrs -}}
{{- $found = .nodeCidrs -}}
{{- else -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
{{- if and (eq (dig "labels" "kubernetes.io/service-name" "" .metadata) "kubernetes") (ne .addressType "FQDN") -}}
{{- $length := eq .addressType "IPv6" | ternary "128" "32" -}}
{{- range .endpoints -}}
{{- range .addresses -}}
{{- $found = append $found (printf "%s/%s" . $length) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found = $found | uniq | sortAlpha -}}
{{- end -}}
{{- end -}}
{{- join "," $found -}}
{{- end }}
{{/* Rules of the switched-on features from files/rights.json: scope is "cluster" or "own". */}}
{{- define "mooring.rules" -}}
{{- $all := .root.Files.Get "files/rights.json" | fromJson -}}
{{- range $name := concat (list "core") (keys .root.Values.features | sortAlpha) }}
{{- if or (eq $name "core") (get $.root.Values.features $name) }}
{{- range $rule := index $all $name $.scope }}
- {{ toJson $rule }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
