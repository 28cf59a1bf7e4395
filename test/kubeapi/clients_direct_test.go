package kubeapi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// directViews reads with requests of client-go, without a cache: lists, pages that are followed by
// their tokens, client-go's pager, and a get of each object.
func directViews(t *testing.T, config *rest.Config) []view {
	t.Helper()
	client := harness.Clientset(t, config)
	dynamicClient := harness.Dynamic(t, config)
	metadataClient, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	return []view{
		{name: "typed list", of: pods, form: typed, read: func(ctx context.Context) ([]runtime.Object, error) {
			list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			return itemsOf(list, err, func(l *corev1.PodList) []corev1.Pod { return l.Items })
		}},
		{name: "metadata list", of: deployments, form: onlyMetadata, read: func(ctx context.Context) ([]runtime.Object, error) {
			list, err := metadataClient.Resource(deployments).List(ctx, metav1.ListOptions{})
			return itemsOf(list, err, func(l *metav1.PartialObjectMetadataList) []metav1.PartialObjectMetadata { return l.Items })
		}},
		{name: "pages", of: configMaps, form: asItIs, read: func(ctx context.Context) (all []runtime.Object, err error) {
			for o := (metav1.ListOptions{Limit: 2}); ; {
				list, err := dynamicClient.Resource(configMaps).List(ctx, o)
				if err != nil {
					return nil, err
				}
				for i := range list.Items {
					all = append(all, &list.Items[i])
				}
				if o.Continue = list.GetContinue(); o.Continue == "" {
					return all, nil
				}
			}
		}},
		{name: "pager", of: widgets, form: asItIs, read: func(ctx context.Context) (all []runtime.Object, err error) {
			p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return dynamicClient.Resource(widgets).List(ctx, o)
			})
			p.PageSize = 2
			err = p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
				all = append(all, o)
				return nil
			})
			return all, err
		}},
		{name: "gets", of: nodes, form: typed, read: func(ctx context.Context) (all []runtime.Object, err error) {
			list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return nil, err
			}
			for _, n := range list.Items {
				got, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				all = append(all, got)
			}
			return all, nil
		}},
	}
}

// itemsOf returns the items of a list, unless there is an error.
func itemsOf[L any, T any, O interface {
	*T
	runtime.Object
}](list L, err error, items func(L) []T) ([]runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	var all []runtime.Object
	for i := range items(list) {
		all = append(all, O(&items(list)[i]))
	}
	return all, nil
}
