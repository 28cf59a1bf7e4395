package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node returns node number i with the status that its kubelet reports.
func Node(i int, seed int64) *corev1.Node {
	s := newSource("node", "", i, seed)
	name := NodeName(i)
	arch := s.from("amd64", "arm64")
	address := s.ip(192, 168)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(s.from("2", "4", "8")),
		corev1.ResourceMemory:           resource.MustParse(fmt.Sprintf("%dKi", 1900000+s.IntN(14000000))),
		corev1.ResourceEphemeralStorage: resource.MustParse(fmt.Sprintf("%dKi", 15000000+s.IntN(100000000))),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				"kubernetes.io/hostname":      name,
				"kubernetes.io/os":            "linux",
				"kubernetes.io/arch":          arch,
				"example.com/shop":            Namespace(i),
				"topology.kubernetes.io/zone": s.from("north", "south", "east", "west"),
			},
			Annotations: map[string]string{"example.com/uplink": s.from("lte", "dsl", "satellite", "fibre")},
		},
		Spec: corev1.NodeSpec{
			PodCIDR:    fmt.Sprintf("10.%d.%d.0/24", 64+i/256%64, i%256),
			PodCIDRs:   []string{fmt.Sprintf("10.%d.%d.0/24", 64+i/256%64, i%256)},
			ProviderID: "edge://" + string(s.uid()),
			Taints:     []corev1.Taint{{Key: "example.com/edge", Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address},
				{Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: s.hex(32), SystemUUID: string(s.uid()), BootID: string(s.uid()),
				KernelVersion: "6.12.48-edge", OSImage: "Debian GNU/Linux 13 (trixie)",
				ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.36.3",
				OperatingSystem: "linux", Architecture: arch,
			},
		},
	}
	for _, c := range []struct {
		kind           corev1.NodeConditionType
		status         corev1.ConditionStatus
		reason, detail string
	}{
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"},
	} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: c.detail,
			LastHeartbeatTime: at(born(i) + 86400), LastTransitionTime: at(born(i))})
	}
	for range 6 + s.IntN(10) {
		digest := s.hex(64)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{"images.example.com/shop/" + s.text(8) + "@sha256:" + digest},
			SizeBytes: int64(s.IntN(400_000_000)),
		})
	}
	return node
}
