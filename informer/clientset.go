package informer

import (
	"context"
	"fmt"
	"iter"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Typed clientsets are examined by reflection: importing client-go's would double every binary. A
// method without arguments (CoreV1) returns the client of a group version, whose methods (ConfigMaps)
// return clients of resources, whose List returns the Go type.

type typedResource struct{ client reflect.Value }

// resourceOf returns a clientset's client of the resource whose objects are of a Go type,
// such as *corev1.ConfigMap.
func resourceOf(clientset any, typ reflect.Type, namespace string) (typedResource, error) {
	for group, accessor := range accessors(clientset) {
		if listed(accessor) != typ {
			continue
		}
		var in []reflect.Value
		if accessor.Type.NumIn() == 1 {
			in = append(in, reflect.ValueOf(namespace))
		}
		return typedResource{group.Call(nil)[0].MethodByName(accessor.Name).Call(in)[0].Elem()}, nil
	}
	return typedResource{}, fmt.Errorf("a %T has no client of a %s", clientset, typ)
}

func isClientset(v any) bool {
	for range accessors(v) {
		return true
	}
	return false
}

// accessors iterates over the methods that return clients of resources which can be listed,
// with the method of the clientset that returns the group's client.
func accessors(clientset any) iter.Seq2[reflect.Value, reflect.Method] {
	return func(yield func(reflect.Value, reflect.Method) bool) {
		v := reflect.ValueOf(clientset)
		for i := range v.NumMethod() {
			group := v.Method(i)
			if t := group.Type(); t.NumIn() != 0 || t.NumOut() != 1 || t.Out(0).Kind() != reflect.Interface {
				continue
			}
			for accessor := range group.Type().Out(0).Methods() {
				if listed(accessor) != nil && !yield(group, accessor) {
					return
				}
			}
		}
	}
}

// listed returns the Go type of the objects that an accessor's client lists, nil if it is
// not the accessor of a resource.
func listed(accessor reflect.Method) reflect.Type {
	t := accessor.Type
	if t.NumIn() > 1 || t.NumIn() == 1 && t.In(0).Kind() != reflect.String || t.NumOut() != 1 || t.Out(0).Kind() != reflect.Interface {
		return nil
	}
	list, ok := t.Out(0).MethodByName("List")
	if !ok || list.Type.NumIn() != 2 || list.Type.In(1) != reflect.TypeFor[metav1.ListOptions]() || list.Type.NumOut() != 2 {
		return nil
	}
	out := list.Type.Out(0)
	if out.Kind() != reflect.Pointer || out.Elem().Kind() != reflect.Struct {
		return nil
	}
	items, ok := out.Elem().FieldByName("Items")
	if !ok || items.Type.Kind() != reflect.Slice {
		return nil
	}
	item := items.Type.Elem()
	if item.Kind() != reflect.Pointer {
		item = reflect.PointerTo(item)
	}
	return item
}

func (r typedResource) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return answer[runtime.Object](r.client.MethodByName("List"), ctx, opts)
}

func (r typedResource) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return answer[watch.Interface](r.client.MethodByName("Watch"), ctx, opts)
}

func (r typedResource) get(ctx context.Context, name string) (metav1.Object, error) {
	return answer[metav1.Object](r.client.MethodByName("Get"), ctx, name, metav1.GetOptions{})
}

// answer calls a method that returns a T and an error.
func answer[T any](method reflect.Value, args ...any) (T, error) {
	var in []reflect.Value
	for _, arg := range args {
		in = append(in, reflect.ValueOf(arg))
	}
	out := method.Call(in)
	if err, _ := out[1].Interface().(error); err != nil {
		var zero T
		return zero, err
	}
	value, _ := out[0].Interface().(T)
	return value, nil
}

// goType returns a scheme's Go type for a resource, if the resource's name is the usual plural of
// the kind.
func goType(scheme *runtime.Scheme, gvr schema.GroupVersionResource) (reflect.Type, error) {
	if scheme != nil {
		for kind, typ := range scheme.KnownTypes(gvr.GroupVersion()) {
			if plural, _ := meta.UnsafeGuessKindToResource(gvr.GroupVersion().WithKind(kind)); plural == gvr {
				return reflect.PointerTo(typ), nil
			}
		}
	}
	return nil, fmt.Errorf("the factory's scheme does not know a type of %s", gvr)
}

// converting returns a function that converts a client's objects to the form of example: a tree to
// a Go type or a Go type to a tree. Objects that already have that form are returned unchanged.
func converting(example runtime.Object, scheme *runtime.Scheme) func(runtime.Object) (runtime.Object, error) {
	_, trees := example.(runtime.Unstructured)
	typ := reflect.TypeOf(example) // the example itself belongs to the program and is not kept
	return func(obj runtime.Object) (runtime.Object, error) {
		switch tree, ok := obj.(runtime.Unstructured); {
		case obj == nil || ok == trees:
			return obj, nil
		case ok:
			typed := reflect.New(typ.Elem()).Interface().(runtime.Object)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.UnstructuredContent(), typed); err != nil {
				return nil, fmt.Errorf("convert to a %s: %w", typ, err)
			}
			typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as typed clients return it
			return typed, nil
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, fmt.Errorf("convert a %T: %w", obj, err)
		}
		made := &unstructured.Unstructured{Object: content}
		made.SetGroupVersionKind(kindOf(obj, scheme))
		return made, nil
	}
}
