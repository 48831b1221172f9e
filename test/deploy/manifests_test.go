package deploy

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// yamlFiles returns all files of the repository that may be manifests or kustomizations: all YAML except that of the
// chart.
func yamlFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(path(t), func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (file == chart(t) || entry.Name() == "dist" ||
			file != path(t) && strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(file) == ".yaml" || filepath.Ext(file) == ".yml":
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestVersions checks that all manifests name the same version of the service as the chart.
func TestVersions(t *testing.T) {
	var chartFile struct{ AppVersion string }
	mustUnmarshal(t, read(t, filepath.Join(chart(t), "Chart.yaml")), &chartFile)
	mention := regexp.MustCompile(`ghcr\.io/extauthz/extauthz:([-.0-9A-Za-z]+)|newTag: (\S+)|[?]ref=v(\S+)`)
	for _, file := range append(yamlFiles(t), path(t, "docs", "kubernetes.md")) {
		for _, m := range mention.FindAllStringSubmatch(string(read(t, file)), -1) {
			version := strings.TrimSuffix(m[1]+m[2]+m[3], "-amd64") // the image of one platform
			if version != chartFile.AppVersion {
				t.Errorf("%s: %s, want version %s of the chart", relative(t, path(t), file), m[0], chartFile.AppVersion)
			}
		}
	}
}

// TestManifests validates every manifest of the repository except patches, which are only parts of objects.
// TestKustomizations validates the patched objects.
func TestManifests(t *testing.T) {
	patches := map[string]bool{}
	for _, k := range kustomizations(t) {
		for _, p := range k.Patches {
			patches[filepath.Join(k.dir, p.Path)] = true
		}
	}
	checked := 0
	for _, file := range yamlFiles(t) {
		if patches[file] || filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		for _, document := range documents(read(t, file)) {
			var of struct{ APIVersion, Kind string }
			if yaml.Unmarshal(document, &of) != nil || of.APIVersion == "" || of.Kind == "" {
				continue // not a manifest
			}
			checked++
			if err := conforms(t, document); err != nil {
				t.Errorf("%s: %v", relative(t, path(t), file), err)
			}
		}
	}
	if checked < 10 {
		t.Errorf("found %d manifests, want at least 10", checked)
	}
}
