package reflector

import "k8s.io/apimachinery/pkg/watch"

// Next returns the next event of a [ListWatch]'s watch as a reflector gets it, false at its end.
func Next(w watch.Interface) (watch.Event, bool) {
	e, ok := <-w.ResultChan()
	if !ok {
		return e, false
	}
	return w.(*stream).event(e), true
}
