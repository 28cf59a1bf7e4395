package controlplane

import "errors"

func (p *process) hold() error { return errors.ErrUnsupported }

func (p *process) release() error { return errors.ErrUnsupported }
