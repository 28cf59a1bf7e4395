package table

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// loadBalancer is the status of a Service's or an Ingress's load balancer.
type loadBalancer struct {
	Ingress []struct {
		IP       string `json:"ip"`
		Hostname string `json:"hostname"`
	} `json:"ingress"`
}

// addresses returns the IPs, or else names, of the load balancer, sorted.
func (b loadBalancer) addresses() []string {
	var addresses []string
	for _, i := range b.Ingress {
		if a := cmp.Or(i.IP, i.Hostname); a != "" {
			addresses = append(addresses, a)
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

type service struct {
	object
	Spec struct {
		Type         string            `json:"type"`
		ClusterIPs   []string          `json:"clusterIPs"`
		ExternalIPs  []string          `json:"externalIPs"`
		ExternalName string            `json:"externalName"`
		Selector     map[string]string `json:"selector"`
		Ports        []struct {
			Port     int32  `json:"port"`
			NodePort int32  `json:"nodePort"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
	} `json:"spec"`
	Status struct {
		LoadBalancer loadBalancer `json:"loadBalancer"`
	} `json:"status"`
}

func (s *service) cells(now clock) []any {
	clusterIP := none
	if len(s.Spec.ClusterIPs) > 0 {
		clusterIP = s.Spec.ClusterIPs[0]
	}
	return []any{
		s.name(), s.Spec.Type, clusterIP, s.external(), s.ports(), s.age(now), labels.FormatLabels(s.Spec.Selector),
	}
}

// external returns the addresses or the name of the service outside the cluster.
func (s *service) external() string {
	switch s.Spec.Type {
	case "ClusterIP", "NodePort":
		return cmp.Or(strings.Join(s.Spec.ExternalIPs, ","), none)
	case "LoadBalancer":
		all := append(s.Status.LoadBalancer.addresses(), s.Spec.ExternalIPs...)
		return cmp.Or(strings.Join(all, ","), "<pending>")
	case "ExternalName":
		return s.Spec.ExternalName
	}
	return unknown
}

func (s *service) ports() string {
	var ports []string
	for _, p := range s.Spec.Ports {
		text := strconv.Itoa(int(p.Port))
		if p.NodePort > 0 {
			text = fmt.Sprintf("%d:%d", p.Port, p.NodePort)
		}
		ports = append(ports, text+"/"+p.Protocol)
	}
	return cmp.Or(strings.Join(ports, ","), none)
}

type ingress struct {
	object
	Spec struct {
		IngressClassName *string `json:"ingressClassName"`
		Rules            []struct {
			Host string `json:"host"`
		} `json:"rules"`
		TLS []struct{} `json:"tls"`
	} `json:"spec"`
	Status struct {
		LoadBalancer loadBalancer `json:"loadBalancer"`
	} `json:"status"`
}

func (i *ingress) cells(now clock) []any {
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	addresses := strings.Join(i.Status.LoadBalancer.addresses(), ",")
	return []any{i.name(), ptr.Deref(i.Spec.IngressClassName, none), i.hosts(), addresses, ports, i.age(now)}
}

// hosts returns the hosts of the rules. As soon as there are three, the other rules are only counted,
// with and without a host; rules without one that come earlier are not.
func (i *ingress) hosts() string {
	var hosts []string
	more := false
	for _, r := range i.Spec.Rules {
		if len(hosts) == listed {
			more = true
			break
		}
		if r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	text := cmp.Or(strings.Join(hosts, ","), "*")
	if more {
		text += fmt.Sprintf(" + %d more...", len(i.Spec.Rules)-listed)
	}
	return text
}

type ingressClass struct {
	object
	Spec struct {
		Controller string `json:"controller"`
		Parameters *struct {
			APIGroup *string `json:"apiGroup"`
			Kind     string  `json:"kind"`
			Name     string  `json:"name"`
		} `json:"parameters"`
	} `json:"spec"`
}

func (c *ingressClass) cells(now clock) []any {
	name := c.name()
	if c.Metadata.Annotations["ingressclass.kubernetes.io/is-default-class"] == "true" {
		name += " (default)"
	}
	parameters := none
	if p := c.Spec.Parameters; p != nil {
		parameters = p.Kind
		if p.APIGroup != nil {
			parameters += "." + *p.APIGroup
		}
		parameters += "/" + p.Name
	}
	return []any{name, c.Spec.Controller, parameters, c.age(now)}
}

type networkPolicy struct {
	object
	Spec struct {
		PodSelector metav1.LabelSelector `json:"podSelector"`
	} `json:"spec"`
}

func (p *networkPolicy) cells(now clock) []any {
	return []any{p.name(), metav1.FormatLabelSelector(&p.Spec.PodSelector), p.age(now)}
}

// listed is how many values a cell lists before the others are only counted.
const listed = 3

// firstOf returns the first values and how many more there are, or the text without values.
func firstOf(values []string, without string) string {
	text := strings.Join(values[:min(listed, len(values))], ",")
	if len(values) > listed {
		return fmt.Sprintf("%s + %d more...", text, len(values)-listed)
	}
	return cmp.Or(text, without)
}

type endpointSlice struct {
	object
	AddressType string `json:"addressType"`
	Ports       []struct {
		Name *string `json:"name"`
		Port *int32  `json:"port"`
	} `json:"ports"`
	Endpoints []struct {
		Addresses []string `json:"addresses"`
	} `json:"endpoints"`
}

func (e *endpointSlice) cells(now clock) []any {
	var ports, addresses []string
	for _, p := range e.Ports {
		if p.Port != nil {
			ports = append(ports, strconv.Itoa(int(*p.Port)))
		} else {
			ports = append(ports, ptr.Deref(p.Name, "*"))
		}
	}
	for _, endpoint := range e.Endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	return []any{e.name(), e.AddressType, firstOf(ports, unset), firstOf(addresses, unset), e.age(now)}
}

type endpoints struct {
	object
	Subsets []struct {
		Addresses []struct {
			IP string `json:"ip"`
		} `json:"addresses"`
		Ports []struct {
			Port int32 `json:"port"`
		} `json:"ports"`
	} `json:"subsets"`
}

func (e *endpoints) cells(now clock) []any {
	without := none
	if len(e.Subsets) > 0 {
		without = ""
	}
	var addresses []string
	for _, s := range e.Subsets {
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				addresses = append(addresses, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				addresses = append(addresses, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return []any{e.name(), firstOf(addresses, without), e.age(now)}
}
