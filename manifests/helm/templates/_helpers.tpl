{{- define "gpusched.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "gpusched.configuration" -}}
{{- $given := .Values.configuration -}}
{{- $parsed := $given -}}
{{- if kindIs "string" $given -}}
{{- $parsed = fromYaml $given -}}
{{- if hasKey $parsed "Error" -}}
{{- fail (printf "configuration is no YAML: %s" $parsed.Error) -}}
{{- end -}}
{{- end -}}
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
