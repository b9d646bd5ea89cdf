// Renders a Helm chart with the values on standard input, as JSON, and prints its documents.
// It fails where the values break the chart's schema, and where a document has a field that Kubernetes does not know.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"regexp"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	log.SetFlags(0)
	values := map[string]any{}
	if err := json.NewDecoder(os.Stdin).Decode(&values); err != nil {
		log.Fatal(err)
	}
	chart, err := loader.Load(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if err := chart.Validate(); err != nil {
		log.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "shop", Namespace: "shops", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		log.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		log.Fatal(err)
	}
	names := []string{}
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, name := range names {
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			if strings.TrimSpace(document) == "" {
				continue
			}
			if _, _, err := decoder.Decode([]byte(document), nil, nil); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
			fmt.Printf("---\n%s\n", strings.TrimSpace(document))
		}
	}
}
