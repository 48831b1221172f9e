package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// conforms returns an error that lists everything in these manifests that the API server would refuse or does not know.
func conforms(t *testing.T, manifests []byte) error {
	t.Helper()
	cmd := exec.Command(testenv.Binary(t, "kubeconform", ""),
		"-strict", "-output", "json", "-schema-location", filepath.Join(schemaRoot, schemaFile), "-")
	cmd.Stdin = bytes.NewReader(manifests)
	printed, err := output(cmd)
	var report struct {
		Resources []struct{ Kind, Name, Version, Status, Msg string }
	}
	if jsonErr := json.Unmarshal([]byte(printed), &report); jsonErr != nil {
		return errors.Join(err, jsonErr)
	}
	var wrong []error
	for _, r := range report.Resources {
		wrong = append(wrong, fmt.Errorf("%s %s %s: %s: %s", r.Version, r.Kind, r.Name, r.Status, r.Msg))
	}
	if err != nil && len(wrong) == 0 {
		return err
	}
	return errors.Join(wrong...)
}
