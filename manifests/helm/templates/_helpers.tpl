{{- define "gpusched.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "gpusched.parsed" -}}
{{- $parsed := .Values.configuration -}}
{{- if kindIs "string" $parsed -}}
{{- $parsed = fromYaml $parsed -}}
{{- if hasKey $parsed "Error" -}}
{{- fail (printf "configuration is no YAML: %s" $parsed.Error) -}}
{{- end -}}
{{- end -}}
{{ toJson $parsed }}
{{- end -}}

{{- /* Names of the shards of the configuration as JSON; nothing where it has none. */ -}}
{{- define "gpusched.shards" -}}
{{- $names := list -}}
{{- $shards := (include "gpusched.parsed" . | fromJson).shards -}}
{{- if and $shards (not (kindIs "slice" $shards)) -}}
{{- fail "configuration.shards must be a list, with a name and a nodeSelector in each item" -}}
{{- end -}}
{{- range $shards -}}
{{- if not (and (kindIs "map" .) .name) -}}
{{- fail "each item of configuration.shards needs a name" -}}
{{- end -}}
{{- $names = append $names (toString .name) -}}
{{- end -}}
{{- if $names -}}
{{ toJson $names }}
{{- end -}}
{{- end -}}

{{- /* For each daemon the shards that it cares for, its own first, as JSON; one that names none where there are no shards. */ -}}
{{- define "gpusched.shardOrders" -}}
{{- $names := include "gpusched.shards" . -}}
{{- $orders := list -}}
{{- if $names -}}
{{- $names = fromJsonArray $names -}}
{{- range $index, $name := $names -}}
{{- $orders = append $orders (concat (slice $names $index) (slice $names 0 $index)) -}}
{{- end -}}
{{- else -}}
{{- $orders = list (list) -}}
{{- end -}}
{{ toJson $orders }}
{{- end -}}

{{- define "gpusched.configuration" -}}
{{- $given := .Values.configuration -}}
{{- $parsed := include "gpusched.parsed" . | fromJson -}}
{{- $named := $parsed.schedulerNames | default (list "gpusched") -}}
{{- if and (or (kindIs "string" $given) (hasKey $parsed "schedulerNames")) $given (ne (toJson $named) (toJson .Values.schedulerNames)) -}}
{{- fail (printf "configuration has schedulerNames %s and the value schedulerNames is %s: give both the same names, as the admission policies hold each of them" (toJson $named) (toJson .Values.schedulerNames)) -}}
{{- end -}}
{{- if and $given (kindIs "string" $given) -}}
{{ $given }}
{{- else if or $given (ne (toJson .Values.schedulerNames) (toJson (list "gpusched"))) -}}
{{ toYaml (merge (dict "schedulerNames" .Values.schedulerNames) $given) }}
{{- else -}}
{{ .Files.Get "files/gpusched.yaml" }}
{{- end -}}
{{- end -}}
