//! The wire messages, generated from `proto/`. Each package has its module: their names
//! overlap (`v1` is both a DRA and a health package).
#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::use_self)]

/// `pluginregistration`: how a kubelet learns who serves a socket.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// `k8s.io.kubelet.pkg.apis.dra.v1`.
pub mod dra_v1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// `k8s.io.kubelet.pkg.apis.dra.v1beta1`: as v1, without `share_id`.
pub mod dra_v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
}

/// `v1alpha1`: device health for kubelets from 1.34.
pub mod health_v1alpha1 {
    tonic::include_proto!("v1alpha1");
}

/// `v1`: device health for kubelets from 1.37, the same messages.
pub mod health_v1 {
    tonic::include_proto!("v1");
}
