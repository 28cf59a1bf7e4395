package kubeapi

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	packer().EncodeAll([]byte("x"), nil) // its channel must not be of the bubble of the first test
	goleak.VerifyTestMain(m)
}
