package deploy

import (
	"strings"
	"testing"
)

// TestMistakesInValues checks that a mistake in a value is an error that names the value. Mistakes are misspelt names,
// other types, and values that contradict each other.
func TestMistakesInValues(t *testing.T) {
	for name, c := range map[string]struct {
		set  string // arguments of --set, separated by spaces
		want string // part of the error
	}{
		"a value": {"replica=2", "at '': additional properties 'replica' not allowed"},
		"a nested value": {"monitoring.serviceMonitor.enable=true",
			"at '/monitoring/serviceMonitor': additional properties 'enable' not allowed"},
		"a setting": {"settings.LGO_LEVEL=DEBUG",
			"at '/settings': additional properties 'LGO_LEVEL' not allowed"},
		"a setting's word": {"settings.LOG_LEVEL=VERBOSE",
			"at '/settings/LOG_LEVEL': value must be one of 'DEBUG', 'INFO', 'WARN', 'ERROR'"},
		"a duration without a unit": {"settings.REDIS_TIMEOUT=8",
			"at '/settings/REDIS_TIMEOUT': got number, want string"},
		"an invalid boolean":            {"settings.SHADOW_MODE=yes", "at '/settings/SHADOW_MODE': got string, want boolean"},
		"a number in words":             {"replicas=two", "at '/replicas': got string, want integer"},
		"a unit in a number of seconds": {"drain.delaySeconds=5s", "at '/drain/delaySeconds': got string, want integer"},
		"a value set to null":           {"replicas=null", "missing property 'replicas'"},
		"several values set to null":    {"redis=null", "missing property 'redis'"},
		"Kubernetes' resources": {"resources.limts.cpu=1",
			"at '/resources': additional properties 'limts' not allowed"},
		"Kubernetes' affinity": {"affinity.nodeAffinty.x=1",
			"at '/affinity': additional properties 'nodeAffinty' not allowed"},
		"Kubernetes' network policy": {"networkPolicy.clients[0].namespaceselector.matchLabels.a=b",
			"at '/networkPolicy/clients/0': additional properties 'namespaceselector' not allowed"},
		"Kubernetes' volumes": {"extraVolumes[0].name=x extraVolumes[0].configmap.name=y",
			"at '/extraVolumes/0': additional properties 'configmap' not allowed"},
		"a digest": {"image.digest=sha256:abc",
			"at '/image/digest': 'sha256:abc' does not match pattern"},
		"an invalid name": {"fullnameOverride=Edge_Limits",
			"at '/fullnameOverride': 'Edge_Limits' does not match pattern"},
		"no image":                 {"image.repository=", "at '/image/repository': minLength"},
		"an empty key of a Secret": {"redis.existingSecret=r redis.urlKey=", "at '/redis/urlKey': minLength"},
		"no node may be drained": {"podDisruptionBudget.maxUnavailable=0",
			"at '/podDisruptionBudget/maxUnavailable': minimum"},
		"a percentage of zero": {"podDisruptionBudget.maxUnavailable=0%",
			"at '/podDisruptionBudget/maxUnavailable': '0%' does not match pattern"},
		"a file of rules without .yaml": {"rules.shop=x", "at '/rules': additional properties 'shop' not allowed"},

		"replicas without Redis": {"replicas=3", "replicas=3: without Redis each replica counts alone"},
		"autoscaling without Redis": {"autoscaling.enabled=true",
			"autoscaling.enabled=true: without Redis each replica counts alone"},
		"a minimum above the maximum": {"redis.existingSecret=r autoscaling.enabled=true autoscaling.minReplicas=20",
			"autoscaling.minReplicas=20 is more than autoscaling.maxReplicas=10"},
		"autoscaling without a CPU request": {"redis.existingSecret=r autoscaling.enabled=true resources.requests=null",
			"autoscaling.enabled=true scales by the CPU request: set resources.requests.cpu"},
		"a label of the chart": {`labels.app\.kubernetes\.io/version=x`,
			"labels: app.kubernetes.io/version belongs to the chart"},
		"a label that selectors use": {`podLabels.app\.kubernetes\.io/name=x`,
			"podLabels: app.kubernetes.io/name belongs to the chart"},
		"ports open to all pods": {"networkPolicy.enabled=false",
			"set networkPolicy.enabled=true, or plaintext=allow if a mesh or another network policy protects them"},
		"the setting in place of the value": {"settings.GRPC_PLAINTEXT=allow",
			"settings.GRPC_PLAINTEXT must not be set: use plaintext"},
		"an invalid word":              {"plaintext=yes", "at '/plaintext': value must be one of '', 'allow'"},
		"rules twice":                  {`rules.a\.yaml=x rulesConfigMap=b`, "rules and rulesConfigMap are both set"},
		"clients' CA without a Secret": {"tls.clientCAKey=ca.crt", "tls.clientCAKey is a key of tls.existingSecret"},
		"a client's name without a CA": {"tls.existingSecret=tls tls.clientName=envoy",
			"tls.clientName requires tls.clientCAKey"},
		"TLS without Redis": {"redis.tls.existingSecret=tls redis.tls.caKey=ca",
			"redis.tls.existingSecret requires redis.existingSecret"},
		"a password without Redis": {"redis.passwordKey=p", "redis.passwordKey is a key of redis.existingSecret"},
		"a second Redis without Redis": {"redis.perSecondURLKey=u",
			"redis.sentinelPasswordKey and redis.perSecondURLKey are keys of redis.existingSecret"},
		"a password without a second Redis": {"redis.perSecondPasswordKey=p", "set redis.perSecondURLKey, too"},
		"keys without a Secret": {"redis.existingSecret=r redis.tls.caKey=ca",
			"redis.tls.caKey, certKey and keyKey are keys of redis.tls.existingSecret"},
		"a Secret without keys": {"redis.existingSecret=r redis.tls.existingSecret=tls", "is set, but none of its keys"},
		"half a certificate": {"redis.existingSecret=r redis.tls.existingSecret=tls redis.tls.certKey=c",
			"redis.tls.certKey and redis.tls.keyKey go together"},
		"API keys without their secret": {"apiKeys.fileSecret=k",
			"apiKeys.fileSecret: keys are hashed with a server secret"},
		"a previous secret without a current one": {"apiKeys.previousKey=k",
			"apiKeys.previousKey is a key of apiKeys.existingSecret"},
		"annotations without a ServiceAccount": {"serviceAccount.create=false serviceAccount.annotations.a=b",
			"serviceAccount.annotations requires serviceAccount.create=true"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{}
			for set := range strings.FieldsSeq(c.set) {
				args = append(args, "--set", set)
			}
			_, err := render(t, args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("helm template %s: %v\nwant an error with: %s", strings.Join(args, " "), err, c.want)
			}
		})
	}
}
