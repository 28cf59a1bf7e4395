// Unmodified is a program on client-go that knows nothing of a durable cache: it prints what its informers tell.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "")
	namespace := flag.String("namespace", "", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		panic(err)
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		panic(err)
	}
	// Two of the same objects, as libraries make them that don't know of each other.
	for _, name := range []string{"first", "second"} {
		lw := cache.NewListWatchFromClient(client, "configmaps", *namespace, fields.Everything())
		informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(obj any, initial bool) {
				m := obj.(*corev1.ConfigMap)
				fmt.Println(name, "added", m.Name, m.Data["value"], initial)
			},
			UpdateFunc: func(_, obj any) {
				m := obj.(*corev1.ConfigMap)
				fmt.Println(name, "updated", m.Name, m.Data["value"])
			},
			DeleteFunc: func(obj any) {
				key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
				fmt.Println(name, "deleted", key)
			},
		})
		if err != nil {
			panic(err)
		}
		go informer.RunWithContext(ctx)
	}
	<-ctx.Done()
}
