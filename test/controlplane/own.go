package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// OwnEnv is the environment variable with the folder of a server that the test did not start, see [Options.Own].
const OwnEnv = "SNAPCACHE_CONTROLPLANE_OWN"

// Names of the files in the folder of an own server.
const (
	ownKubeconfig = "kubeconfig"
	ownProgram    = "program"
	ownSaved      = "saved"
)

// own is a server that the test did not start.
type own struct {
	admin     *rest.Config
	program   string // path
	datastore string // address of its etcd, or of its kine
	kine      bool
	saved     string // its first state
}

// SaveOwn prepares a folder for [Options.Own]: a server with the administrator's kubeconfig, and the program that kills
// and restores it (test/e2e/testdata/server.sh says how it is called). Its state of now is saved, and each control plane
// starts with that.
func SaveOwn(ctx context.Context, dir, kubeconfig, program string) error {
	b, err := os.ReadFile(kubeconfig)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ownKubeconfig), b, 0o600); err != nil {
		return err
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	if err := os.Symlink(program, filepath.Join(dir, ownProgram)); err != nil {
		return err
	}
	o, err := loadOwn(ctx, dir)
	if err != nil {
		return err
	}
	return o.do(ctx, "save", o.saved)
}

// OwnServer returns the version and datastore of the server in a folder of [SaveOwn].
func OwnServer(ctx context.Context, dir string) (Server, error) {
	o, err := loadOwn(ctx, dir)
	if err != nil {
		return Server{}, err
	}
	client, err := kubernetes.NewForConfig(o.admin)
	if err != nil {
		return Server{}, err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return Server{}, err
	}
	v, _, _ := strings.Cut(version.GitVersion, "+") // "v1.36.3+k3s1"
	return Server{v, o.kine}, nil
}

func loadOwn(ctx context.Context, dir string) (*own, error) {
	o := &own{program: filepath.Join(dir, ownProgram), saved: filepath.Join(dir, ownSaved)}
	var err error
	if o.admin, err = clientcmd.BuildConfigFromFlags("", filepath.Join(dir, ownKubeconfig)); err != nil {
		return nil, err
	}
	o.admin.QPS = -1
	if err := rest.LoadTLSFiles(o.admin); err != nil {
		return nil, err
	}
	words, err := o.ask(ctx, "datastore")
	if err != nil {
		return nil, err
	}
	o.kine, o.datastore = words[0] == "kine", words[1]
	return o, nil
}

// do has the program do something.
func (o *own) do(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, o.program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", o.program, args, err, out)
	}
	return nil
}

// ask returns the two words that the program answers.
func (o *own) ask(ctx context.Context, question string) ([]string, error) {
	out, err := exec.CommandContext(ctx, o.program, question).Output()
	words := strings.Fields(string(out))
	if err == nil && len(words) != 2 {
		err = fmt.Errorf("its answer is not two words: %q", out)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.program, question, err)
	}
	return words, nil
}

// clientCA returns the authority of client certificates.
func (o *own) clientCA(ctx context.Context) (*tls.Certificate, string, error) {
	files, err := o.ask(ctx, "client-ca")
	if err != nil {
		return nil, "", err
	}
	pair, err := tls.LoadX509KeyPair(files[0], files[1])
	return &pair, files[0], err
}

// await waits until the server is ready.
func (o *own) await(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(o.admin)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		if last = client.RESTClient().Get().AbsPath("/readyz").Timeout(5 * time.Second).Do(ctx).Error(); last == nil {
			_, last = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		}
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// restore puts the server back to a saved state.
func (o *own) restore(ctx context.Context, dir string) error {
	if err := o.do(ctx, "restore", dir); err != nil {
		return err
	}
	return o.await(ctx)
}

// prepareOwn reads how to reach the server.
func (cp *ControlPlane) prepareOwn(ctx context.Context, dir string) error {
	var err error
	if cp.own, err = loadOwn(ctx, dir); err != nil {
		return fmt.Errorf("own server: %w", err)
	}
	cp.caData, cp.tokens = cp.own.admin.CAData, make(map[string]string, len(users))
	if cp.clientCA, cp.clientCAFile, err = cp.own.clientCA(ctx); err != nil {
		return fmt.Errorf("own server: %w", err)
	}
	cp.ownAdmin, err = cp.IssueClient(Admin, []string{users[0].group}, 24*time.Hour)
	return err
}

// startOwn puts the server back to its first state, and makes the users. The
// administrator has a certificate, whose rights no restart can lack for a moment.
func (cp *ControlPlane) startOwn(ctx context.Context) error {
	if err := cp.own.restore(ctx, cp.own.saved); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cp.own.admin)
	if err != nil {
		return err
	}
	for _, u := range users[1:] {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: cp.Subject(u.name).Name}}
		accounts := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
		if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		day := int64((24 * time.Hour).Seconds())
		token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		cp.tokens[u.name] = token.Status.Token
	}
	return nil
}

// Subject returns whom a rule has to name for [Reader] and [Stranger]: service accounts on an own server, which takes no
// tokens of ours.
func (cp *ControlPlane) Subject(user string) rbacv1.Subject {
	if cp.own == nil {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
	}
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "controlplane-" + user}
}
