# Images without an engine or a registry: OCI layouts in an archive, made on the host and imported into the node.

busybox_image=localhost/busybox:e2e
glibc_image=localhost/glibc:e2e
architecture=$(dpkg --print-architecture) # Debian's names are OCI's for the two that matter, amd64 and arm64

# image NAME ROOT CONFIG ARCHIVE: an image of one layer, the folder ROOT, with CONFIG (JSON, as in the OCI image spec).
image() {
	local name=$1 root=$2 config=$3 archive=$4 layout layer
	layout=$(mktemp -d "$state/image.XXXXXX")
	mkdir -p "$layout/blobs/sha256"
	tar --create --file "$layout/layer" --directory "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner .
	layer=$(sha256sum <"$layout/layer")
	jq --null-input --arg architecture "$architecture" --arg layer "sha256:${layer%% *}" --argjson config "$config" \
		'{$architecture, os: "linux", $config, rootfs: {type: "layers", diff_ids: [$layer]}}' >"$layout/config"
	jq --null-input --argjson config "$(blob "$layout" config vnd.oci.image.config.v1+json)" \
		--argjson layer "$(blob "$layout" layer vnd.oci.image.layer.v1.tar)" \
		'{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json", $config, layers: [$layer]}' >"$layout/manifest"
	jq --null-input --arg name "$name" --argjson manifest "$(blob "$layout" manifest vnd.oci.image.manifest.v1+json)" \
		'{schemaVersion: 2, manifests: [$manifest + {annotations: {"io.containerd.image.name": $name}}]}' >"$layout/index.json"
	echo '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
	tar --create --file "$archive" --directory "$layout" .
	rm -rf "$layout"
}

# blob LAYOUT FILE TYPE: moves a file to its place by digest, and prints its descriptor.
blob() {
	local digest size
	digest=$(sha256sum <"$1/$2")
	size=$(stat --format %s "$1/$2")
	mv "$1/$2" "$1/blobs/sha256/${digest%% *}"
	echo "{\"mediaType\": \"application/$3\", \"digest\": \"sha256:${digest%% *}\", \"size\": $size}"
}

# The image of the tests' pods, and of their sandboxes too: its command does nothing, for ever. glibc_archive ARCHIVE is
# the same with a C library, for programs of the driver.
glibc_archive() {
	local root=$state/busybox
	from_packages "$root" libc6 libgcc-s1
	image "$glibc_image" "$root" '{"Env": ["PATH=/bin:/usr/bin"]}' "$1"
}
busybox_archive() {
	local root=$state/busybox applet
	! ldd "$(command -v busybox)" >/dev/null 2>&1 || skip "busybox needs libraries here; install busybox-static instead"
	mkdir -p "$root"/{bin,dev,etc,proc,run,sys,tmp,usr,var}
	cp "$(command -v busybox)" "$root/bin/busybox"
	for applet in $("$root/bin/busybox" --list); do
		[[ $applet == busybox ]] || ln -s busybox "$root/bin/$applet"
	done
	image "$busybox_image" "$root" '{"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "infinity"]}' "$1"
}

# archive_of DOCKERFILE NAME FILES ARCHIVE: the image that the last stage of a Dockerfile describes.
#
# What COPY takes is looked up in the folder FILES by its base name. Of the base image only what a C program needs is
# taken, from the Debian packages that distroless builds it from. Any instruction not known here is an error, so that the
# image under test can't differ from the users' without a word.
archive_of() {
	local dockerfile=$1 name=$2 files=$3 archive=$4 root config='{"User": "0"}' instruction rest words
	root=$(mktemp -d "$state/root.XXXXXX")
	while read -r instruction rest; do
		read -ra words <<<"$rest"
		case $instruction in
		FROM)
			rm -rf "${root:?}"/* && config='{"User": "0"}'
			[[ $rest != *distroless/cc-debian12* ]] || from_packages "$root" libc6 libgcc-s1 libstdc++6 gcc-12-base
			;;
		COPY) copy "$root" "$files" "${words[@]}" ;;
		ENTRYPOINT) config=$(jq --compact-output --argjson value "$rest" '.Entrypoint = $value' <<<"$config") ;;
		CMD) config=$(jq --compact-output --argjson value "$rest" '.Cmd = $value' <<<"$config") ;;
		ENV) config=$(jq --compact-output --arg value "$rest" '.Env += [$value]' <<<"$config") ;;
		USER) config=$(jq --compact-output --arg value "$rest" '.User = $value' <<<"$config") ;;
		LABEL | ARG | EXPOSE) ;;
		*) echo "$dockerfile: no rule here for $instruction $rest" >&2 && return 1 ;;
		esac
	done < <(last_stage "$dockerfile")
	image "$name" "$root" "$config" "$archive"
	rm -rf "$root"
}

# last_stage DOCKERFILE: its instructions from the last FROM on, one a line, without comments.
last_stage() {
	sed -e '/^[[:space:]]*#/d' -e '/^[[:space:]]*$/d' "$1" | sed -e ':more' -e '/\\$/{N;s/\\\n[[:space:]]*/ /;b more' -e '}' |
		awk '/^FROM / {stage = ""} {stage = stage $0 "\n"} END {printf "%s", stage}'
}

# copy ROOT FILES [--OPTION...] SOURCE... TARGET: the instruction COPY, for files, and for folders of links: those beside the files.
copy() {
	local root=$1 files=$2 source target=${!#} mode=
	shift 2
	for source in "${@:1:$#-1}"; do
		case $source in
		--chmod=*) mode=${source#*=} ;;
		--*) ;;
		*/) find "$files" -maxdepth 1 -type l -exec cp --no-dereference --target-directory "$root$target" {} + ;;
		*)
			install -D --mode "${mode:-755}" --target-directory "$root${target%/*}" "$files/${source##*/}"
			[[ $target == */ || ${source##*/} == "${target##*/}" ]] || mv "$root${target%/*}/${source##*/}" "$root$target"
			;;
		esac
	done
}

# from_packages ROOT PACKAGE...: the files of installed Debian packages, without their documentation.
from_packages() {
	local root=$1 file
	shift
	dpkg --listfiles "$@" | grep -v '^/usr/share/\(doc\|lintian\)/' | while read -r file; do
		[[ ! -f $file ]] || echo "${file#/}"
	done | tar --create --directory / --files-from - | tar --extract --directory "$root"
	mkdir --parents "$root/tmp"
	chmod 1777 "$root/tmp"
}
