package kubectl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Error is one or more failures, in kubectl's words.
type Error struct{ errs []error }

// newError returns an [*Error] of the errors that are not nil, nil for none.
func newError(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	return &Error{errs}
}

// Error returns a line for each failure.
func (e *Error) Error() string {
	lines := make([]string, len(e.errs))
	for i, err := range e.errs {
		text, standard := message(err)
		if !standard && len(e.errs) == 1 {
			text = "error: " + text
		}
		lines[i] = text
	}
	return strings.Join(lines, "\n")
}

func (e *Error) Unwrap() []error { return e.errs }

// message returns the text of an error. It is standard if it needs no prefix.
func message(err error) (text string, standard bool) {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		switch s := status.Status(); s.Reason {
		case metav1.StatusReasonUnauthorized:
			return fmt.Sprintf("error: You must be logged in to the server (%s)", s.Message), true
		case metav1.StatusReasonUnknown:
			return "Error from server: " + s.Message, true
		default:
			return fmt.Sprintf("Error from server (%s): %s", s.Reason, s.Message), true
		}
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Sprintf("Unable to connect to the server: %v", request.Err), true
	}
	return err.Error(), false
}

// listError adds the requested resource and selectors to an error of a list, as kubectl does.
func listError(err error, r *resource, o Options) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err) {
		return err
	}
	prefix := fmt.Sprintf("Unable to list %q", r.String())
	if o.LabelSelector != "" || o.FieldSelector != "" {
		prefix = fmt.Sprintf("Unable to find %q that match label selector %q, field selector %q", r.String(), o.LabelSelector, o.FieldSelector)
	}
	status = &apierrors.StatusError{ErrStatus: *status.ErrStatus.DeepCopy()}
	status.ErrStatus.Message = prefix + ": " + status.ErrStatus.Message
	return status
}
