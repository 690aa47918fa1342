//go:build tools

// Package tools pins what only tests use: Helm, once of each major version, and Prometheus' promtool.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/promtool"
	_ "helm.sh/helm/v3/cmd/helm"
	_ "helm.sh/helm/v4/cmd/helm"
)
