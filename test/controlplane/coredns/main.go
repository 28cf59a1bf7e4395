// Command coredns is CoreDNS with the plugins that tests use: with all of them it takes twice as long
// to build. It is a module of its own because its versions of client-go and other modules are its own.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
