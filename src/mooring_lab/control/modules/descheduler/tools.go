//go:build tools

// Package descheduler pins the descheduler, which the lab runs beside Mooring.
package descheduler

import (
	_ "sigs.k8s.io/descheduler/cmd/descheduler"
)
