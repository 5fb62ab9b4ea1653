{{- define "gpu-dra.preset" -}}
{{- get (.Files.Get "presets.yaml" | fromYaml) .Values.preset | toYaml -}}
{{- end -}}

{{- define "gpu-dra.driverRoot" -}}
{{- .Values.driver.root | default (include "gpu-dra.preset" . | fromYaml).driverRoot -}}
{{- end -}}

{{- define "gpu-dra.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- $image.repository }}@{{ $image.digest -}}
{{- else -}}
{{- $image.repository }}:{{ $image.tag | default .Chart.AppVersion -}}
{{- end -}}
{{- end -}}

{{- define "gpu-dra.labels" -}}
{app.kubernetes.io/name: gpu-dra, app.kubernetes.io/component: {{ . }}}
{{- end -}}

{{- /* The metadata of a component's pods: (dict "component" NAME "of" its values). */ -}}
{{- define "gpu-dra.podMetadata" -}}
{{- if or .of.podLabels .of.podAnnotations -}}
{{- with .of.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  app.kubernetes.io/name: gpu-dra
  app.kubernetes.io/component: {{ .component }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- else -}}
labels: {{ include "gpu-dra.labels" .component }}
{{- end -}}
{{- end -}}

{{- /* Affinity that selects nodes with NVIDIA devices by the labels that others put on them. */ -}}
{{- define "gpu-dra.affinity" -}}
{{- $nodes := .Values.nodes | default (include "gpu-dra.preset" . | fromYaml).nodes -}}
{{- if .Values.node.affinity }}
affinity:
  {{- toYaml .Values.node.affinity | nindent 2 }}
{{- else if eq $nodes "nfd" }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      # Node Feature Discovery's names, by vendor and by class and vendor, for 3D and for VGA controllers.
      - matchExpressions:
        - {key: feature.node.kubernetes.io/pci-10de.present, operator: In, values: ["true"]}
      - matchExpressions:
        - {key: feature.node.kubernetes.io/pci-0302_10de.present, operator: In, values: ["true"]}
      - matchExpressions:
        - {key: feature.node.kubernetes.io/pci-0300_10de.present, operator: In, values: ["true"]}
      # GPUs without PCI, such as those of Grace and of Tegra.
      - matchExpressions:
        - {key: feature.node.kubernetes.io/cpu-model.vendor_id, operator: In, values: [NVIDIA]}
      # GPU Operator's and GPU Feature Discovery's.
      - matchExpressions:
        - {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
{{- else if eq $nodes "gke" }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: cloud.google.com/gke-accelerator, operator: Exists}
{{- end }}
{{- end -}}
