package informer

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// guarded calls a function of the program, which may run under the store's locks, and returns its
// panic as an error. As in client-go, utilruntime.PanicHandlers get the panic in any case, and
// guarded panics again unless utilruntime.ReallyCrash is false.
func guarded(logger *slog.Logger, call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = crashed(logger, r)
		}
	}()
	return call()
}

// crashed handles a panic that was recovered. It is a function of its own so that a call that does
// not panic needs no context.
func crashed(logger *slog.Logger, r any) (err error) {
	ctx := klog.NewContext(context.Background(), logr.FromSlogHandler(logger.Handler()))
	defer utilruntime.HandleCrashWithContext(ctx, func(context.Context, any) {
		err = fmt.Errorf("panic: %v", r)
	})
	panic(r)
}
