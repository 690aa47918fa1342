//go:build tools

// Package karpenter pins Karpenter with its kwok provider, which the lab runs beside Mooring.
package karpenter

import (
	_ "sigs.k8s.io/karpenter/kwok"
)
