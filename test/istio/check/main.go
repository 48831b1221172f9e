// Check finds mistakes in kustomizations that Istio does not report. It renders them and lets Istio's control plane
// make the configurations of Envoy. It reports patches that match nothing, unknown fields and missing providers.
//
//	cd test/istio && go run ./check -mesh-config ../../istio/mesh-config.yaml \
//		../../istio/service ../../istio/gateway ../../istio/example
//
// Name all directories that refer to each other: extauthz' Service, the policies, Gateways and VirtualServices.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/extauthz/extauthz/test/istio/mesh"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run checks the kustomizations of the arguments. Its error lists all mistakes, one on each line.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	meshConfig := flags.String("mesh-config", "",
		"`file` with Istio's mesh-wide settings below meshConfig:, as values of istiod's chart")
	namespace := flags.String("gateway-namespace", "istio-system", "the namespace of the gateway's pods")
	label := flags.String("gateway-label", "istio=ingressgateway", "a label of the gateway's pods")
	if err := flags.Parse(args); err != nil {
		return err
	}
	key, value, ok := strings.Cut(*label, "=")
	if !ok {
		return fmt.Errorf("-gateway-label %s: want a label and its value, such as istio=ingressgateway", *label)
	}
	if *meshConfig == "" || flags.NArg() == 0 {
		return errors.New("want -mesh-config FILE and the directories of one or more kustomizations; see -help")
	}
	m, err := mesh.Load(*meshConfig, flags.Args()...)
	if err != nil {
		return err
	}
	m.Gateway.Namespace, m.Gateway.Spec.Selector = *namespace, map[string]string{key: value}
	if err := errors.Join(m.Check()...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "ok: %d objects of Istio, and each does something\n", len(m.Objects))
	return err
}
