package objects

import (
	corev1 "k8s.io/api/core/v1"
)

// podStatus returns the status that a kubelet reports of a running pod. created is in seconds after
// [epoch].
func podStatus(spec *corev1.PodSpec, created int, s source) corev1.PodStatus {
	ready := created + 12 + s.IntN(40)
	ip := s.ip(10, 64+s.IntN(64))
	host := s.ip(192, 168)
	status := corev1.PodStatus{
		Phase:              corev1.PodRunning,
		ObservedGeneration: 1,
		HostIP:             host,
		HostIPs:            []corev1.HostIP{{IP: host}},
		PodIP:              ip,
		PodIPs:             []corev1.PodIP{{IP: ip}},
		StartTime:          ptr(at(created + 1)),
		QOSClass:           corev1.PodQOSBurstable,
	}
	for _, c := range []struct {
		kind corev1.PodConditionType
		at   int
	}{
		{corev1.PodReadyToStartContainers, created + 4},
		{corev1.PodInitialized, created + 6},
		{corev1.PodReady, ready},
		{corev1.ContainersReady, ready},
		{corev1.PodScheduled, created},
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: c.kind, Status: corev1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: at(c.at)})
	}
	for _, c := range spec.Containers {
		cs := containerStatus(c, s)
		cs.Started = ptr(true)
		cs.RestartCount = int32(s.IntN(3))
		cs.State.Running = &corev1.ContainerStateRunning{StartedAt: at(ready - 3)}
		status.ContainerStatuses = append(status.ContainerStatuses, cs)
	}
	for _, c := range spec.InitContainers {
		cs := containerStatus(c, s)
		cs.Started = ptr(false)
		cs.State.Terminated = &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: at(created + 4), FinishedAt: at(created + 6), ContainerID: cs.ContainerID}
		status.InitContainerStatuses = append(status.InitContainerStatuses, cs)
	}
	return status
}

func containerStatus(c corev1.Container, s source) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:        c.Name,
		Ready:       true,
		Image:       c.Image,
		ImageID:     "images.example.com/shop/" + c.Name + "@sha256:" + s.hex(64),
		ContainerID: "containerd://" + s.hex(64),
	}
}
