package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/cmd/snapcache/internal/podpatch"
	"github.com/snapcache/snapcache/upstream"
)

const (
	portFlag      = "port"
	configMapFlag = "ca-configmap"
	undoFlag      = "undo"
)

// defaultAgentPort is the port of the address in config/example.yaml.
const defaultAgentPort = 6445

// workloads are the kinds that are patched, each with its plural and its short name.
var workloads = [][]string{
	{"daemonset", "daemonsets", "ds"},
	{"deployment", "deployments", "deploy"},
	{"statefulset", "statefulsets", "sts"},
}

func patchCommand() *cli.Command {
	return &cli.Command{
		Name:  "patch",
		Usage: "print a patch with which pods read from the agent on their node",
		UsageText: "snapcache patch KIND/NAME [-n NAMESPACE] [--port PORT] [--ca-configmap NAME] [--undo] " +
			"[--kubeconfig FILE] [--context NAME]",
		Description: `Reads a DaemonSet, Deployment or StatefulSet with your kubeconfig, and prints a strategic
merge patch: in each container KUBERNETES_SERVICE_HOST becomes the address of the pod's
node, and KUBERNETES_SERVICE_PORT the port of the agents. It changes nothing by itself.
On stderr it shows the changes. When the patch is applied, the pods are replaced.

   snapcache patch daemonset/till -n shop
   snapcache patch ds/till -n shop | kubectl patch ds till -n shop --patch-file /dev/stdin
   snapcache patch ds/till -n shop --undo | kubectl patch ds till -n shop --patch-file /dev/stdin

The agents have to listen at the address of their node, let in the cluster's users
(kubernetesAPI.access) and have a certificate that pods trust (kubernetesAPI.signer).
If that is not of the cluster's CA, --ca-configmap names a ConfigMap in the namespace of
the pods with the authority of the agents in ca.crt: it takes the place of the cluster's
for everything that the pods reach by their service account.

KIND is daemonset, deployment or statefulset, or ds, deploy or sts.`,
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: namespaceFlag, Aliases: []string{"n"},
				Usage: "the `NAMESPACE` of the object; default: the one of the context, else default",
			},
			&cli.IntFlag{
				Name: portFlag, Value: defaultAgentPort, Usage: "the `PORT` of kubernetesAPI.address of the agents",
			},
			&cli.StringFlag{
				Name: configMapFlag, Usage: "the ConfigMap with this `NAME` has the authority of the agents",
			},
			&cli.BoolFlag{Name: undoFlag, Usage: "print the patch that takes it back"},
			kubeconfigFlag(),
			&cli.StringFlag{
				Name: "context", Usage: "the context of the kubeconfig with this `NAME`; default: the current one",
			},
		},
		Action: atMost(1, printPatch),
	}
}

func printPatch(c *cli.Context) error {
	kind, name, err := workload(c.Args().First())
	if err != nil {
		return err
	}
	if port := c.Int(portFlag); port < 1 || port > 65535 {
		return usagef("--port %d: give a port between 1 and 65535", port)
	}
	if c.Bool(undoFlag) && (c.IsSet(portFlag) || c.IsSet(configMapFlag)) {
		return usagef("--undo takes back all that patch changes: leave out --port and --ca-configmap")
	}
	namespace := namespaceOfContext(c)
	template, err := readTemplate(c, kind, namespace, name)
	if err != nil {
		return err
	}
	object, args := kind[0]+"/"+name, kind[0]+" "+name+" -n "+namespace
	var patch any
	var changes []podpatch.Change
	if c.Bool(undoFlag) {
		patch, changes, err = podpatch.Undo(template)
	} else {
		opts := podpatch.Options{Port: c.Int(portFlag), ConfigMap: c.String(configMapFlag)}
		patch, changes, err = podpatch.Apply(template, opts)
	}
	var foreign *podpatch.ForeignError
	switch {
	case errors.Is(err, podpatch.ErrNotPatched):
		return fmt.Errorf("%s in namespace %s: %w: there is nothing to take back", object, namespace, err)
	case errors.As(err, &foreign):
		return fmt.Errorf("%s in namespace %s: %w; remove it first (kubectl edit %s)", object, namespace, err, args)
	case err != nil:
		return fmt.Errorf("%s in namespace %s: %w", object, namespace, err)
	}
	raw, err := yaml.Marshal(patch)
	if err != nil {
		return err
	}
	lines := make([]string, 0, len(changes)+1)
	for _, change := range changes {
		lines = append(lines, change.String())
	}
	lines = append(lines, "apply it, which replaces the pods: kubectl patch "+args+" --patch-file FILE")
	return errors.Join(writeStrings(c.App.ErrWriter, strings.Join(lines, "\n"), "\n"), writeStrings(c.App.Writer, string(raw)))
}

// workload returns the names of a kind, and the object's, in KIND/NAME.
func workload(arg string) (kind []string, name string, err error) {
	text, name, ok := strings.Cut(arg, "/")
	group, _, _ := strings.Cut(strings.ToLower(text), ".") // daemonsets.apps
	i := slices.IndexFunc(workloads, func(names []string) bool { return slices.Contains(names, group) })
	switch {
	case !ok || name == "" || strings.Contains(name, "/"):
		return nil, "", usagef("give the object as KIND/NAME, as in daemonset/till")
	case i < 0:
		return nil, "", usagef("%s is not daemonset, deployment or statefulset: "+
			"patch the object that makes the pods", text)
	}
	return workloads[i], name, nil
}

// namespaceOfContext returns the namespace that kubectl would use.
func namespaceOfContext(c *cli.Context) string {
	if c.String(namespaceFlag) != "" {
		return c.String(namespaceFlag)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.String("kubeconfig")
	found, err := rules.Load()
	if err != nil {
		return corev1.NamespaceDefault // the error is of the connection, too
	}
	if context := found.Contexts[cmp.Or(c.String("context"), found.CurrentContext)]; context != nil {
		return cmp.Or(context.Namespace, corev1.NamespaceDefault)
	}
	return corev1.NamespaceDefault
}

// readTemplate reads the template of the pods of a workload.
func readTemplate(c *cli.Context, kind []string, namespace, name string) (*corev1.PodTemplateSpec, error) {
	cfg, err := upstream.LoadConfig(c.String("kubeconfig"), c.String("context"))
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	cfg.APIPath = "/apis"
	cfg.GroupVersion = &schema.GroupVersion{Group: "apps", Version: "v1"}
	cfg.NegotiatedSerializer = metascheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := interruptible(c.Context)
	defer stop()
	raw, err := client.Get().Namespace(namespace).Resource(kind[1]).Name(name).
		SetHeader("Accept", "application/json").MaxRetries(0).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no %s %s in namespace %s: see kubectl get %s -A, and give -n NAMESPACE",
			kind[0], name, namespace, kind[1])
	}
	if err != nil {
		return nil, upstream.Explain(err)
	}
	var object struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("%s/%s: %w", kind[0], name, err)
	}
	return &object.Spec.Template, nil
}
