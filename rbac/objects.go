package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Account is the service account that receives the permissions. The roles and bindings have its
// name.
type Account struct {
	Name, Namespace string
}

// Objects returns the service account and the roles and bindings that grant it the permissions, in
// the order in which they can be created. The namespaces have to exist.
func (r Permissions) Objects(a Account) []any {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.Name, Namespace: a.Namespace}}
	objects := []any{
		metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: a.meta(a.Namespace)},
		rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: a.meta(""), Rules: r.Cluster},
		rbacv1.ClusterRoleBinding{
			TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: a.meta(""), Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.Name},
		},
	}
	for _, namespace := range slices.Sorted(maps.Keys(r.Namespaced)) {
		objects = append(objects,
			rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: a.meta(namespace), Rules: r.Namespaced[namespace]},
			rbacv1.RoleBinding{
				TypeMeta: kind("RoleBinding"), ObjectMeta: a.meta(namespace), Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.Name},
			})
	}
	return objects
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
}

func (a Account) meta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: a.Name, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/name": "snapcache"}}
}
