//go:build tools

// Package nodes pins the rest of the lab: etcd, its client, and kwok, which plays the kubelets.
package nodes

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/server/v3"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
